"""What an attempt changes, as one flat mapping, and what it is called.

    {"kind": "replay"}                           the same steps again, as they were
    {"kind": "skip", "first": 24, "last": 28}    these steps are not trained and count as done
    {"kind": "scale", "learning_rate": 0.5, "weight_decay": 2.0, "moments": "reset"}
    {"kind": "smaller_batch", "micro_batch_size": 4, "gradient_accumulation_steps": 2}

Steps are 1-based and inclusive. The factors of `scale` are absolute: they count from the task
file's own values, and a missing one is 1. An attempt that must pass a window over with a smaller
batch carries the batch in its `skip`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from runner.report import Rung
from runner.settings import Rung as RungSetting
from runner.settings import rung_factor

Scaled = Literal["learning_rate", "weight_decay"]
Factors = dict[str, float]

SCALED: tuple[Scaled, ...] = ("learning_rate", "weight_decay")
REPLAY: Rung = {"kind": "replay"}


def words(rung: Rung | None) -> str:
    """A rung for people, such as `skipping steps 24-28`."""
    rung = rung or REPLAY
    match rung.get("kind"):
        case "skip":
            first, last = rung.get("first"), rung.get("last")
            parts = [f"skipping step {last}" if first == last else f"skipping steps {first}-{last}"]
        case "scale":
            parts = [f"{key} x{rung[key]:g}" for key in SCALED if key in rung]
            parts += ["moments reset"] if rung.get("moments") == "reset" else []
        case "smaller_batch":
            parts = []
        case kind:
            return ", ".join([str(kind), *(f"{k} {v}" for k, v in rung.items() if k != "kind")])
    return ", ".join([*parts, *(f"{key} {rung[key]}" for key in _BATCH if key in rung)])


_BATCH = ("micro_batch_size", "gradient_accumulation_steps")


def factors_in_force(rungs: Iterable[Rung | None]) -> Factors:
    """The factors that the attempts so far (oldest first) left in force."""
    factors: Factors = dict.fromkeys(SCALED, 1.0)
    for rung in rungs:
        if rung is not None and rung.get("kind") == "scale":
            factors = {name: float(rung.get(name) or 1.0) for name in SCALED}
    return factors


def scaled(setting: RungSetting, factors: Factors) -> Rung:
    """The rung of a `{learning_rate: x0.5}` of the ladder where `factors` are in force.

    A factor counts from the task file's value. Where one as strong is in force already it is
    applied on top of it, for a rung that changes nothing would be a replay.
    """
    rung: Rung = {"kind": "scale"}
    for name in SCALED:
        factor = _stronger(rung_factor(setting, name), factors[name])
        if factor != 1.0:
            rung[name] = factor
    if isinstance(setting, dict) and setting.get("moments") == "reset":
        rung["moments"] = "reset"
    return rung


def _stronger(asked: float, in_force: float) -> float:
    if asked == 1.0:
        return in_force
    as_strong = in_force <= asked if asked < 1.0 else in_force >= asked
    return asked * in_force if as_strong else asked
