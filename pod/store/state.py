"""What another pod needs of a run besides a checkpoint: its events, and the orders of the attempt.

The detector's state and the run's window of steps are learned anew from the events. What names
processes of this pod (trainer.json, control.json, locks) stays here.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from pod.rundir import RunDir, replace_text
from pod.store.manifest import Manifest
from runner.secrets import scrub

FILES = ("events.jsonl", "attempt.json")

_Line = tuple[dict[str, Any], str]


def name_of(run: str, file: str) -> str:
    """Where a file of the state lies in the store."""
    return f"{run}/state/{file}"


def snapshot(run_dir: RunDir, folder: Path) -> dict[str, Path]:
    """Copy the state as it is now, whole lines only and without secrets: it leaves the pod. The
    files that exist, by name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for file in FILES:
        source, copy = run_dir.path / file, folder / file
        if source.is_file():
            shutil.copyfile(source, copy)
            found[file] = copy
    if FILES[0] in found:
        content = found[FILES[0]].read_bytes()
        whole = content[: content.rfind(b"\n") + 1].decode(errors="replace")
        found[FILES[0]].write_bytes(scrub(whole).encode())
    return found


def merge(
    run_dir: RunDir, folder: Path, checkpoint: Manifest, *, attempt: int | None = None
) -> None:
    """Let the run know what was known when `checkpoint` was saved; `folder` holds a snapshot.

    `attempt` is the number of the attempt that goes on from it (the checkpoint's own if not given).
    What earlier attempts did is kept whole, from the snapshot and from here. Of an attempt that
    goes on under its number only what led to the checkpoint is: the steps after it are told by who
    trains them again. Safe to repeat.
    """
    every = _lines(folder / FILES[0])
    if every:
        limit = checkpoint.attempt if attempt is None else attempt
        stored = _leading_to(every, checkpoint, limit)
        known = {_key(line) for line in stored}
        here = [
            line
            for line in _lines(run_dir.events)
            if line[0]["attempt"] < limit and _key(line) not in known
        ]
        merged = sorted([*stored, *here], key=lambda line: int(line[0]["attempt"]))
        replace_text(run_dir.events, "".join(f"{text}\n" for _, text in merged))
    orders = folder / FILES[1]
    if orders.is_file() and not run_dir.attempt_file.exists():
        replace_text(run_dir.attempt_file, orders.read_text(encoding="utf-8"))


def _leading_to(lines: list[_Line], checkpoint: Manifest, limit: int) -> list[_Line]:
    """All lines of attempts before `limit`, and the checkpoint's own up to its save."""
    saves = [
        number
        for number, (event, _) in enumerate(lines)
        if event["kind"] == "save"
        and (event["attempt"], event["step"]) == (checkpoint.attempt, checkpoint.step)
    ]
    end = saves[-1] if saves else None

    def leads(number: int, event: dict[str, Any]) -> bool:
        if event["attempt"] < limit:
            return True
        if event["attempt"] != checkpoint.attempt or event["kind"] == "rewound":
            return False  # a trainer elsewhere was sent back; here nobody was
        return bool(event["step"] <= checkpoint.step if end is None else number <= end)

    return [line for number, line in enumerate(lines) if leads(number, line[0])]


def _key(line: _Line) -> tuple[Any, ...]:
    """A step is told once in an attempt, whoever trained it; other facts are their text."""
    event, text = line
    if event["kind"] in ("step", "save", "eval"):
        return event["kind"], event["attempt"], event["step"]
    return (scrub(text),)  # as it came back from the store


def _lines(path: Path) -> list[_Line]:
    """The whole events of a file with their text, which is kept as it is."""
    try:
        texts = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except FileNotFoundError:
        return []
    found = []
    for text in texts:
        try:
            event = json.loads(text)
        except ValueError:
            continue
        if isinstance(event, dict) and {"kind", "attempt", "step"} <= set(event):
            found.append((event, text))
    return found
