"""Real loss curves, the faults planted into their healthy ones, and how an alarm is judged.

A file holds one JSON object a line: name, label (healthy, transient, or a failure: divergence,
nonfinite, collapse), onset_index, steps, loss, grad_norm; a number that is not finite is null.
"""

import gzip
import json
import math
import os
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FAULTS = ("x5", "x2", "drift", "nan", "zero")
SHORTEST_TO_PLANT = 60
EARLIEST, LATEST = 30, 400  # index at which a fault begins
LEFT = 20  # points that are left for it, where the curve has them

Rule = Callable[[int, float, float | None], bool]


@dataclass(frozen=True)
class Curve:
    """One run's log; `onset` counts logged points and is None for a healthy run."""

    name: str
    label: str
    repository: str
    onset: int | None
    steps: list[int]
    losses: list[float]
    grad_norms: list[float | None]


def default_path() -> Path:
    """CURVES, else the curves in AXR_SHARED, else in the folder beside the repository."""
    if named := os.environ.get("CURVES"):
        return Path(named)
    shared = Path(os.environ.get("AXR_SHARED", ROOT.parent / "shared"))
    return shared / "losscurves" / "curves.jsonl.gz"


def read(path: Path) -> list[Curve]:
    """All curves of a file, gzipped or not."""
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    return [_curve(line) for line in text.decode().splitlines() if line.strip()]


def plant(curve: Curve, fault: str, seed: int) -> tuple[Curve, int]:
    """The curve with a fault from a random index on, which depends on seed and name alone.

    x5 and x2 stay, drift rises by 3 % a point up to x5; grad_norm is left as it was.
    """
    last = max(EARLIEST, min(LATEST, len(curve.losses) - LEFT))
    onset = random.Random(f"{seed}:{curve.name}").randint(EARLIEST, last)
    losses = [
        value if i < onset else _faulty(value, fault, i - onset + 1)
        for i, value in enumerate(curve.losses)
    ]
    return replace(curve, label=fault, onset=onset, losses=losses), onset


def first_alarm(rule: Rule, curve: Curve) -> int | None:
    """Index of the point at which the rule first raises an alarm."""
    points = zip(curve.steps, curve.losses, curve.grad_norms, strict=True)
    return next((i for i, point in enumerate(points) if rule(*point)), None)


def plantable(curves: Iterable[Curve]) -> Iterator[Curve]:
    """The healthy curves that are long enough to plant a fault into."""
    return (c for c in curves if c.label == "healthy" and len(c.losses) >= SHORTEST_TO_PLANT)


def _curve(line: str) -> Curve:
    data = json.loads(line)
    norms = data["grad_norm"] or [None] * len(data["loss"])
    known = any(norm is not None for norm in norms)
    return Curve(
        name=data["name"],
        label=data["label"],
        repository=data["source"]["repo"],
        onset=data["onset_index"],
        steps=data["steps"],
        losses=[math.nan if loss is None else loss for loss in data["loss"]],
        # A run that logs grad_norm at all writes null for one that is not finite.
        grad_norms=[math.nan if norm is None and known else norm for norm in norms],
    )


def _faulty(value: float, fault: str, points: int) -> float:
    match fault:
        case "x5":
            return value * 5
        case "x2":
            return value * 2
        case "drift":
            return value * min(5.0, 1.03**points)
        case "nan":
            return math.nan
        case "zero":
            return 0.0
    raise ValueError(f"no fault is called {fault}")
