"""events.jsonl: the append-only facts of a run, one JSON object a line.

Every event has `kind`, `t` (unix seconds), `attempt` and `step` (0 if none). Numbers that JSON
does not know travel as the texts "nan", "inf" and "-inf" and come back as floats. A process that
dies while it writes leaves a line without its end: readers wait for the end, and the next writer
closes the line first, so that it is never glued to a good one.
"""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any

Event = dict[str, Any]

KINDS = (
    "fetch",
    "armed",
    "step",
    "save",
    "alarm",
    "postmortem",
    "decision",
    "rewound",
    "eval",
    "error",
    "hang",
    "end",
)

_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def append(
    path: Path, kind: str, attempt: int, step: int, *, t: float | None = None, **fields: Any
) -> None:
    """Append one event to `path` in a single write; `t` defaults to now (unix seconds)."""
    now = time.time() if t is None else t
    event = {"kind": kind, "t": now, "attempt": attempt, "step": step, **fields}
    line = json.dumps(_encoded(event), allow_nan=False).encode() + b"\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            line = b"\n" + line
        os.write(file, line)
    finally:
        os.close(file)


def read(path: Path, offset: int = 0) -> tuple[list[Event], int]:
    """Return the whole events from byte `offset` on and the offset to read on from.

    A missing file has no events; a line cut off by a dead writer is passed over.
    """
    try:
        with path.open("rb") as file:
            file.seek(offset)
            block = file.read()
    except FileNotFoundError:
        return [], offset
    whole = block[: block.rfind(b"\n") + 1]
    events = [event for line in whole.split(b"\n") if (event := _parsed(line)) is not None]
    return events, offset + len(whole)


def kept_steps(events: list[Event], *, before_attempt: int, up_to: int) -> list[Event]:
    """Return the `step` events that led to the weights an attempt starts from, in order.

    An attempt that started from a checkpoint replaced what earlier ones had done after it; only
    the branch that was kept counts, and of that the steps up to `up_to`. Skipped steps are no part
    of it, whoever trained them before.
    """
    branch: dict[int, Event] = {}
    newest = 0
    for event in events:
        if event["attempt"] >= before_attempt:
            continue
        if event["kind"] == "decision" and event.get("cmd") == "skip" and event.get("done"):
            skipped = range(event["first"], event["last"] + 1)
            branch = {step: kept for step, kept in branch.items() if step not in skipped}
        if event["kind"] != "step":
            continue
        if event["attempt"] != newest:
            newest = event["attempt"]
            branch = {step: kept for step, kept in branch.items() if step < event["step"]}
        branch[event["step"]] = event
    return [branch[step] for step in sorted(branch) if step <= up_to]


class Follower:
    """Reads on in an event file: each `poll` gives what came since the last one.

    `seen` holds every event so far, in the order of the file.
    """

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        self.offset = offset
        self.seen: list[Event] = []

    def poll(self) -> list[Event]:
        """Return the new events, an empty list if there is none."""
        new, self.offset = read(self.path, self.offset)
        self.seen.extend(new)
        return new


def _parsed(line: bytes) -> Event | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    if not isinstance(value, dict) or "kind" not in value:
        return None
    return {key: _decoded(item) for key, item in value.items()}


def _decoded(value: Any) -> Any:
    if isinstance(value, str):
        return _NON_FINITE.get(value, value)
    if isinstance(value, dict):
        return {key: _decoded(item) for key, item in value.items()}
    return value


def _encoded(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, dict):
        return {key: _encoded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_encoded(item) for item in value]
    return value
