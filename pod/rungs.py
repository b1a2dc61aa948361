"""What an attempt does differently from the task file, done to a trainer that has loaded its state.

    replay  nothing
    skip    steps first..last are not trained and count as done: the trainer derives the data
            position from its step number alone, so it starts from a copy of the checkpoint whose
            step number is `last` (`doctor`), and the schedule is moved on (`advance_schedule`)
    scale   learning rate and weight decay times absolute factors, relative to the task file's own

A changed task file would do nothing here: optimizer.pt and scheduler.pt win on resume. What was
changed lives on in later checkpoints, so each notes its factors (in trainer_state.json, which is
written with it) and only wanted / noted is applied.

Not covered: optimizers that keep a rate elsewhere than in their groups (schedule-free, D-Adapt).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

STATE_FILE = "trainer_state.json"
OPTIMIZER_FILES = ("optimizer.pt", "scheduler.pt")
_NOTE = "axolotl-runner"  # our key in the trainer's state, among those of callbacks
_RATES = ("lr", "initial_lr", "max_lr", "min_lr")
_SCHEDULE_RATES = ("base_lrs", "_last_lr", "max_lr", "min_lr", "max_lrs", "min_lrs")


@dataclass(frozen=True)
class Factors:
    """Times the task file's own values; both above 0."""

    learning_rate: float = 1.0
    weight_decay: float = 1.0

    def __post_init__(self) -> None:
        if self.learning_rate <= 0 or self.weight_decay <= 0:
            raise ValueError(f"factors must be above 0, not {asdict(self)}")


@dataclass(frozen=True)
class Skip:
    """Steps first..last, 1-based and inclusive."""

    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True)
class Change:
    """What the attempt wants; `factors` None leaves those of its checkpoint."""

    kind: str | None = None
    factors: Factors | None = None
    reset_moments: bool = False
    skip: Skip | None = None


def wanted(attempt: Mapping[str, Any]) -> Change:
    """Return what attempt.json asks for; raises ValueError for a rung that makes no sense."""
    rung: Mapping[str, Any] = attempt.get("rung") or {}
    kind = rung.get("kind")
    given = attempt.get("factors") or (rung if kind == "scale" else None)
    factors = None
    if given is not None:
        factors = Factors(
            float(given.get("learning_rate", 1.0)), float(given.get("weight_decay", 1.0))
        )
    skip = None
    if kind == "skip":
        skip = Skip(int(rung["first"]), int(rung["last"]))
        if not 1 <= skip.first <= skip.last:
            raise ValueError(f"no such window of steps: {skip.first} to {skip.last}")
    return Change(kind, factors, kind == "scale" and rung.get("moments") == "reset", skip)


def apply_factors(
    factors: Factors | None, state: Any, optimizer: Any, scheduler: Any, *, loaded: bool
) -> Factors:
    """Bring optimizer and schedule to `factors`, note them in the trainer's state, return them.

    `loaded` tells whether optimizer and schedule come from the checkpoint; else they are new and
    have the task file's own values, whatever the checkpoint notes.
    """
    noted = Factors(**state.stateful_callbacks.get(_NOTE, {}).get("factors", {}))
    now = noted if loaded else Factors()
    target = factors or noted
    _scale_rates(optimizer, scheduler, target.learning_rate / now.learning_rate)
    _scale_decay(optimizer, target.weight_decay / now.weight_decay)
    # A name that is no callback's is left alone by the trainer, and saved with the checkpoint.
    state.stateful_callbacks[_NOTE] = {"factors": asdict(target)}
    return target


def reset_moments(optimizer: Any) -> None:
    """Let the optimizer begin anew: its step count and its averages of the gradients."""
    optimizer.state.clear()


def advance_schedule(scheduler: Any, steps: int) -> None:
    """Move the schedule on by `steps`; one that goes by the losses has nothing to move.

    Its own count is not asked: axolotl's REX schedule is one ahead of the trainer.
    """
    if hasattr(scheduler, "base_lrs"):
        for _ in range(steps):
            scheduler.step()


def real_values(optimizer: Any) -> dict[str, list[float]]:
    """Return what the optimizer's groups have by now."""
    groups = optimizer.param_groups
    return {
        "learning_rate": [float(group["lr"]) for group in groups],
        "weight_decay": [float(group.get("weight_decay", 0.0)) for group in groups],
    }


def step_of(checkpoint: Path | None) -> int:
    """Return the last step that the checkpoint holds, 0 without one."""
    return 0 if checkpoint is None else int(_state(checkpoint)["global_step"])


def has_optimizer(checkpoint: Path | None) -> bool:
    """Whether the trainer finds optimizer and schedule there (not with save_only_model)."""
    if checkpoint is None:
        return False
    return all((checkpoint / name).is_file() for name in OPTIMIZER_FILES)


def doctor(checkpoint: Path, target: Path, *, step: int, keep: bool = True) -> None:
    """Make `target` a checkpoint like this one that says it holds `step`; replaces an older one.

    Hard links, so that rotation of the source takes nothing away. With `keep` False the source is
    used up. `target` must not lie in the output folder under a checkpoint's name: the trainer
    would take it for one of its own.
    """
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    if keep:
        shutil.copytree(checkpoint, target, copy_function=_link)
    else:
        checkpoint.rename(target)
    state = {**_state(target), "global_step": step}
    path = target / STATE_FILE
    path.unlink()  # it is linked to the source's, which stays as it is
    path.write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")  # may hold NaN


def _scale_rates(optimizer: Any, scheduler: Any, factor: float) -> None:
    if factor == 1.0:
        return
    for group in optimizer.param_groups:
        for key in _RATES:
            if group.get(key) is not None:
                group[key] = group[key] * factor
    while scheduler is not None:
        for key in _SCHEDULE_RATES:
            value = getattr(scheduler, key, None)
            if isinstance(value, list | tuple):
                setattr(scheduler, key, [rate * factor for rate in value])
            elif isinstance(value, int | float):
                setattr(scheduler, key, value * factor)
        scheduler = getattr(scheduler, "inner_schedule", None)


def _scale_decay(optimizer: Any, factor: float) -> None:
    for group in optimizer.param_groups:
        if factor != 1.0 and group.get("weight_decay") is not None:
            group["weight_decay"] = group["weight_decay"] * factor


def _state(checkpoint: Path) -> dict[str, Any]:
    state: dict[str, Any] = json.loads((checkpoint / STATE_FILE).read_text(encoding="utf-8"))
    return state


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # a volume without hard links
        os.symlink(Path(source).resolve(), target)
