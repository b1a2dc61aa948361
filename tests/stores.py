"""Runs whose checkpoints are stored, and a place where something happens in between."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pod import events, ledger
from pod.rundir import RunDir, write_json
from pod.store.contents import Contents
from pod.store.folder import FolderPlace
from pod.store.mirror import Mirror
from pod.store.places import Place, Source, StoreError
from tests.checkpoints import safetensors, torch_file

RUN = "run-1"


def make_checkpoint(
    run_dir: RunDir, step: int, *, attempt: int = 1, health: str | None = "healthy", size: int = 64
) -> Path:
    """A checkpoint as the trainer and the ledger leave it, with the events that tell of it."""
    folder = run_dir.out / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    content = f"{step}.{attempt}.".encode()
    (folder / "model.safetensors").write_bytes(safetensors(content.rjust(size, b"\0")))
    (folder / "optimizer.pt").write_bytes(torch_file([step, attempt]))
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    events.append(run_dir.events, "save", attempt, step, checkpoint=folder.name)
    if health is not None:
        ledger.record(folder, step=step, attempt=attempt, health=health)  # type: ignore[arg-type]
    return folder


def train(
    run_dir: RunDir, steps: range, *, attempt: int = 1, every: int = 10, size: int = 64
) -> None:
    """Steps 1-based; a checkpoint `every` so many."""
    write_json(run_dir.attempt_file, {"attempt": attempt})
    for step in steps:
        events.append(run_dir.events, "step", attempt, step, loss=1.0 / step)
        if step % every == 0:
            make_checkpoint(run_dir, step, attempt=attempt, size=size)


def trained_to_the_end(
    run_dir: RunDir,
    step: int = 20,
    *,
    gathered: bool = False,
    weights: str = "model.safetensors",
    size: int = 64,
) -> None:
    """A training that is complete, its model not yet published."""
    train(run_dir, range(1, step + 1))
    folder = run_dir.path / "model" if gathered else run_dir.out
    folder.mkdir(exist_ok=True)
    for name in ("config.json", "trainer_state.json"):
        (folder / name).write_text("{}")
    (folder / weights).write_bytes(safetensors(bytes(range(256)) * (size // 256) or bytes(size)))
    facts: dict[str, Any] = {"finished": True, "files": [weights]}
    events.append(run_dir.events, "end", 1, step, **facts)


def rotate(run_dir: RunDir, *, limit: int) -> None:
    """Delete the oldest checkpoints as the Trainer does."""
    steps = sorted(int(path.name.split("-")[1]) for path in run_dir.out.iterdir())
    for step in steps[:-limit]:
        shutil.rmtree(run_dir.out / f"checkpoint-{step}")


def mirror(run_dir: RunDir, place: Place, *, keep: int = 3) -> Mirror:
    """A mirror of the run, as a new process has it."""
    return Mirror(Contents(run_dir, place, RUN), keep=keep)


def settle(mirror: Mirror) -> None:
    """Let the mirror do all that is due."""
    for _ in range(20):
        if not mirror.once():
            return
    raise AssertionError("the mirror finds no end")


def stored_steps(root: Path) -> list[int]:
    """The steps that have a manifest in a folder place."""
    return sorted(int(path.stem.split("-")[1]) for path in root.glob(f"{RUN}/checkpoint-*.json"))


def trained_steps(run_dir: RunDir) -> list[tuple[int, int]]:
    """Attempt and step of each step event."""
    every, _ = events.read(run_dir.events)
    return [(e["attempt"], e["step"]) for e in every if e["kind"] == "step"]


class WatchedPlace(FolderPlace):
    """Calls `before` with the name of each file that is to be written; it may raise."""

    def __init__(self, root: Path, before: Callable[[str], None]) -> None:
        super().__init__(root)
        self.before = before

    def put(self, files: Mapping[str, Source], *, delete: Sequence[str] = ()) -> None:
        self.delete([*files][-1:])
        for name, source in files.items():
            self.before(name)
            super().put({name: source})
        self.delete(delete)


def away(_: str) -> None:
    """What a place does when it can't be reached."""
    raise StoreError("checkpoint store: away")
