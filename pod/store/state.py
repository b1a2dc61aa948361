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

FILES = ("events.jsonl", "attempt.json")

_Line = tuple[dict[str, Any], str]


def name_of(run: str, file: str) -> str:
    """Where a file of the state lies in the store."""
    return f"{run}/state/{file}"


def snapshot(run_dir: RunDir, folder: Path) -> dict[str, Path]:
    """Copy the state as it is now, whole lines only; the files that exist, by name."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for file in FILES:
        source, copy = run_dir.path / file, folder / file
        if source.is_file():
            shutil.copyfile(source, copy)
            found[file] = copy
    if FILES[0] in found:
        content = found[FILES[0]].read_bytes()
        found[FILES[0]].write_bytes(content[: content.rfind(b"\n") + 1])
    return found


def merge(run_dir: RunDir, folder: Path, checkpoint: Manifest) -> None:
    """Let the run know what was known when `checkpoint` was saved; `folder` holds a snapshot.

    Events of the checkpoint's attempt end with it, and later attempts' are dropped, so that the
    steps which follow are told once, whichever number the attempt has that trains them. What
    earlier attempts did here and the snapshot does not know is kept. Safe to repeat.
    """
    stored = _up_to(_lines(folder / FILES[0]), checkpoint)
    known = {text for _, text in stored}
    here = [
        (event, text)
        for event, text in _lines(run_dir.events)
        if event["attempt"] < checkpoint.attempt and text not in known
    ]
    merged = sorted([*stored, *here], key=lambda line: int(line[0]["attempt"]))
    if merged:
        replace_text(run_dir.events, "".join(f"{text}\n" for _, text in merged))
    orders = folder / FILES[1]
    if orders.is_file() and not run_dir.attempt_file.exists():
        replace_text(run_dir.attempt_file, orders.read_text(encoding="utf-8"))


def _up_to(lines: list[_Line], checkpoint: Manifest) -> list[_Line]:
    """The lines up to the event of this save, those of earlier attempts in any case."""
    attempt, step = checkpoint.attempt, checkpoint.step
    saves = [
        number
        for number, (event, _) in enumerate(lines)
        if (event["kind"], event["attempt"], event["step"]) == ("save", attempt, step)
    ]
    end = saves[-1] if saves else -1
    return [
        line
        for number, line in enumerate(lines)
        if line[0]["attempt"] < attempt
        or (line[0]["attempt"] == attempt and (number <= end or (not saves and _is_by(line, step))))
    ]


def _is_by(line: _Line, step: int) -> bool:
    return bool(line[0]["step"] <= step)


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
