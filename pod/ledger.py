"""Which checkpoints of a run may be trusted, and where the others go.

A checkpoint is `out/checkpoint-N`, N being the last step it holds. Once its files are hashed it
carries `axr_ledger.json`, written last and by rename:

    {step, attempt, health: healthy|suspect, rung, factors, batch, t,
     files: {name: {bytes, sha256}}}

A folder without it (the trainer was killed while it hashed) is judged by its structure and by
whether its weights are finite.
Rotation by the trainer knows nothing of health and may delete every good checkpoint before an
alarm is certain; `keep` therefore holds hard links in `kept/`, outside its reach. Nothing is
deleted here but such links: what must not be used is renamed into `quarantine/`.

Not covered: volumes without hard links have no `kept/`; there the run depends on a high enough
save_total_limit.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pod.finite import ruined_weights
from pod.integrity import structural_flaw
from pod.rundir import RunDir, read_json, replace_text, sha256_of, write_json

LEDGER = "axr_ledger.json"
_NAME = re.compile(r"checkpoint-(\d+)")

Health = Literal["healthy", "suspect", "unrecorded"]


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on the volume; what follows `health` is None when it has no ledger entry.

    `factors` are learning_rate and weight_decay relative to the task file's; `batch` is who made
    up a step: {world_size, micro_batch_size, gradient_accumulation_steps}.
    """

    path: Path
    step: int
    health: Health
    attempt: int | None = None
    rung: dict[str, Any] | None = None
    factors: dict[str, float] | None = None
    batch: dict[str, int] | None = None


def record(
    checkpoint: Path,
    *,
    step: int,
    attempt: int,
    health: Literal["healthy", "suspect"],
    rung: dict[str, Any] | None = None,
    factors: dict[str, float] | None = None,
    batch: dict[str, int] | None = None,
) -> None:
    """Hash every file of the checkpoint, then write its ledger entry.

    Raises FileNotFoundError when rotation removes the folder meanwhile.
    """
    files = {
        name: {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
        for name, path in _files(checkpoint)
    }
    if not checkpoint.is_dir():
        raise FileNotFoundError(checkpoint)
    entry = {
        "step": step,
        "attempt": attempt,
        "health": health,
        "rung": rung,
        "factors": factors,
        "batch": batch,
        "t": time.time(),
        "files": files,
    }
    write_json(checkpoint / LEDGER, entry)


class Recorder:
    """Records and keeps checkpoints on a thread of its own: hashing costs the trainer nothing.

    At most one is in flight. The next `submit` waits for it, so the checkpoint being hashed is
    always the newest one and rotation does not take it away. `factors` and `batch` are set later.
    """

    def __init__(self, run_dir: RunDir, *, attempt: int, rung: dict[str, Any] | None) -> None:
        self.run_dir = run_dir
        self.attempt = attempt
        self.rung = rung
        self.factors: dict[str, float] | None = None
        self.batch: dict[str, int] | None = None
        self._thread: threading.Thread | None = None

    def submit(
        self, step: int, health: Literal["healthy", "suspect"], *, proven: Sequence[int]
    ) -> None:
        """Record checkpoint-`step`, then `keep` by the steps that are `proven` by now."""
        self.close()
        self._thread = threading.Thread(target=self._work, args=(step, health, proven))
        self._thread.start()

    def close(self) -> None:
        """Wait for the record in flight."""
        if self._thread is not None:
            self._thread.join()

    def _work(
        self, step: int, health: Literal["healthy", "suspect"], proven: Sequence[int]
    ) -> None:
        checkpoint = self.run_dir.out / f"checkpoint-{step}"
        try:
            record(
                checkpoint,
                step=step,
                attempt=self.attempt,
                health=health,
                rung=self.rung,
                factors=self.factors,
                batch=self.batch,
            )
            keep(self.run_dir, proven=proven)
        except OSError as error:
            # A checkpoint without an entry is still judged by its structure: training goes on.
            print(
                f"axolotl-runner: {checkpoint.name} was not recorded or kept: {error}", flush=True
            )


def verify(checkpoint: Path, *, hashes: bool = True) -> str | None:
    """Return why the checkpoint cannot be used, None when it can.

    With `hashes` every file is compared with its ledger entry and every weight must be finite
    (reads all of it); without, only structure, safety and sizes are looked at.
    """
    flaw = structural_flaw(checkpoint) or _unlike_recorded(checkpoint, hashes=hashes)
    if flaw is not None or not hashes:
        return flaw
    return ruined_weights(checkpoint)


def pick(run_dir: RunDir, *, before: int | None = None) -> Checkpoint | None:
    """Return the newest usable healthy checkpoint with step < `before` (an alarm's onset).

    Without an onset a suspect one is better than to start over, but comes last. With an onset,
    recorded checkpoints go before unrecorded ones, and the one of step onset - 1 comes last: no
    loss computed with its weights was ever normal, it may be the ruined one. The picked one's
    note of a best checkpoint elsewhere is mended, so that the path exists on this machine.
    """
    for checkpoint in sorted(_usable_by_name(run_dir, before), key=lambda c: _rank(c, before)):
        if verify(checkpoint.path) is None:
            _mend_best_checkpoint(run_dir, checkpoint.path)
            return checkpoint
    return None


def checkpoints(run_dir: RunDir) -> list[Checkpoint]:
    """Return the checkpoints whose structure is sound, oldest first, suspect ones too."""
    found = {**_checkpoints(run_dir.kept), **_checkpoints(run_dir.out)}
    return [
        _described(step, path)
        for step, path in sorted(found.items())
        if verify(path, hashes=False) is None
    ]


def quarantine(run_dir: RunDir, *, onset: int | None, attempt: int) -> list[str]:
    """Move every checkpoint from `onset` on, and every unusable one, into the quarantine.

    Returns the new names, oldest step first (`checkpoint-20.attempt-1`); none the second time.
    Hashes are compared from the newest checkpoint down to the first sound one; what is older
    is looked at by structure only, for the sake of time.
    """
    moved: dict[int, str] = {}
    sound_found = False
    for step, path in sorted(_checkpoints(run_dir.out).items(), reverse=True):
        late = onset is not None and step >= onset
        if late or verify(path, hashes=not sound_found) is not None:
            moved[step] = _move_aside(run_dir, path, attempt)
        else:
            sound_found = True
    for step, path in _checkpoints(run_dir.kept).items():
        if onset is not None and step >= onset:
            if step in moved:
                shutil.rmtree(path)  # links to the files just moved
            else:
                moved[step] = _move_aside(run_dir, path, attempt)
    return [moved[step] for step in sorted(moved)]


def keep(run_dir: RunDir, *, proven: Sequence[int]) -> list[int]:
    """Link healthy checkpoints into `kept/` and let go of those no longer needed there.

    A step is proven when enough log entries followed it without an alarm; jumps are certain
    soon and drifts late, so there are several such steps. For each of them two checkpoints stay
    after rotation has taken their originals: the newest proven one and the next to become so.
    Links to checkpoints that still exist cost nothing and are all held. Returns the steps kept.
    """
    originals = _checkpoints(run_dir.out)
    for path in originals.values():
        entry = _entry(path)
        if entry is not None and entry["health"] == "healthy":
            _link(path, run_dir.kept / path.name, entry)
    kept = _checkpoints(run_dir.kept)
    wanted = set(originals)
    for limit in proven:
        wanted.add(max((step for step in kept if step <= limit), default=-1))
        wanted.add(min((step for step in kept if step > limit), default=-1))
    for step, path in kept.items():
        if step not in wanted:
            shutil.rmtree(path)
    return sorted(_checkpoints(run_dir.kept))


def _unlike_recorded(checkpoint: Path, *, hashes: bool) -> str | None:
    entry = _entry(checkpoint)
    for name, expected in entry["files"].items() if entry is not None else ():
        path = checkpoint / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != expected["bytes"]:
            return f"{name} has {path.stat().st_size} bytes, recorded were {expected['bytes']}"
        if hashes and sha256_of(path) != expected["sha256"]:
            return f"{name} has changed since it was recorded"
    return None


def _usable_by_name(run_dir: RunDir, before: int | None) -> list[Checkpoint]:
    paths = list(_checkpoints(run_dir.out).items()) + list(_checkpoints(run_dir.kept).items())
    found = [_described(step, path) for step, path in paths]
    if before is None:
        return found
    return [c for c in found if c.health != "suspect" and c.step < before]


def _rank(checkpoint: Checkpoint, before: int | None) -> tuple[bool, bool, int]:
    if before is None:
        return checkpoint.health == "suspect", False, -checkpoint.step
    return checkpoint.step == before - 1, checkpoint.health == "unrecorded", -checkpoint.step


def _described(step: int, path: Path) -> Checkpoint:
    entry = _entry(path)
    if entry is None:
        return Checkpoint(path, step, "unrecorded")
    return Checkpoint(
        path,
        step,
        entry["health"],
        entry["attempt"],
        entry["rung"],
        entry.get("factors"),
        entry.get("batch"),
    )


def _checkpoints(folder: Path) -> dict[int, Path]:
    if not folder.is_dir():
        return {}
    named = {path: _NAME.fullmatch(path.name) for path in folder.iterdir()}
    return {int(match[1]): path for path, match in named.items() if match and path.is_dir()}


def _entry(checkpoint: Path) -> dict[str, Any] | None:
    try:
        entry = read_json(checkpoint / LEDGER)
    except ValueError:
        return None  # a machine that lost power mid-write: as good as no entry
    return entry if entry is not None and "files" in entry else None


def _files(checkpoint: Path) -> list[tuple[str, Path]]:
    files = (path for path in sorted(checkpoint.rglob("*")) if path.is_file())
    return [(str(path.relative_to(checkpoint)), path) for path in files if LEDGER not in path.name]


def _move_aside(run_dir: RunDir, checkpoint: Path, attempt: int) -> str:
    run_dir.quarantine.mkdir(parents=True, exist_ok=True)
    name = f"{checkpoint.name}.attempt-{attempt}"
    target = run_dir.quarantine / name
    number = 1
    while target.exists():
        number += 1
        target = run_dir.quarantine / f"{name}.{number}"
    checkpoint.rename(target)
    return target.name


def _link(source: Path, target: Path, entry: dict[str, Any]) -> None:
    if _entry(target) == entry:
        return
    unfinished = target.with_name(f".{target.name}")
    for old in (unfinished, target):
        shutil.rmtree(old, ignore_errors=True)
    shutil.copytree(source, unfinished, copy_function=os.link)
    unfinished.rename(target)


def _mend_best_checkpoint(run_dir: RunDir, checkpoint: Path) -> None:
    """Let `best_model_checkpoint` name a folder that exists here, or none.

    The trainer writes an absolute path; on another pod, or after a quarantine, it leads nowhere
    and the run would fail after its last step.
    """
    path = checkpoint / "trainer_state.json"
    state = json.loads(path.read_text(encoding="utf-8"))
    best = state.get("best_model_checkpoint")
    if not best or Path(best).is_dir():
        return
    here = run_dir.out / Path(best).name
    state["best_model_checkpoint"] = str(here) if here.is_dir() else None
    replace_text(path, json.dumps(state, indent=2) + "\n")  # its history may hold NaN
    entry = _entry(checkpoint)
    if entry is not None:
        entry["files"][path.name] = {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
        write_json(checkpoint / LEDGER, entry)
