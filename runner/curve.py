"""The loss curve of a run over all its attempts: as a picture and as a line of text.

A run's curve goes back in steps at each rollback, so a point is (attempt, step, loss) and the
attempts are drawn one over the other: what was thrown away faint, what counts in full colour.

Not covered: an exact reading of values; the numbers are in report.json and events.jsonl.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, TypeGuard

Scale = Literal["linear", "log", "symlog"]

# Below this ratio of largest to smallest loss a linear axis shows everything; a healthy
# fine-tune runs from about 3 to 0.5, a spike multiplies the loss by 5 to 1000.
LOG_FROM_RATIO = 7.0

BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class CurvePoint:
    """One logged loss; `step` is 1-based, `loss` may be NaN, infinite or None (not logged)."""

    attempt: int
    step: int
    loss: float | None


def curve_points(events: Iterable[Mapping[str, object]]) -> list[CurvePoint]:
    """The points in the objects of events.jsonl, sorted, one per (attempt, step).

    A step seen twice in an attempt (after a rewind in the same process) counts as last seen.
    Non-finite losses are there as the strings "nan", "inf", "-inf".
    """
    return _points(events, "step", "loss")


def eval_points(events: Iterable[Mapping[str, object]]) -> list[CurvePoint]:
    """As `curve_points`, of the losses of evaluations; one that told none is no point."""
    return [p for p in _points(events, "eval", "eval_loss") if p.loss is not None]


def _points(events: Iterable[Mapping[str, object]], kind: str, name: str) -> list[CurvePoint]:
    seen: dict[tuple[int, int], CurvePoint] = {}
    for event in events:
        attempt, step, loss = event.get("attempt"), event.get("step"), event.get(name)
        if event.get("kind") != kind or not isinstance(attempt, int) or not isinstance(step, int):
            continue
        known = None if not isinstance(loss, int | float | str) else _number(loss)
        seen[attempt, step] = CurvePoint(attempt, step, known)
    return [seen[key] for key in sorted(seen)]


def thin(
    points: Sequence[CurvePoint], most: int = 400, *, keep: Collection[tuple[int, int]] = ()
) -> list[CurvePoint]:
    """At most `most` points that look the same: ends, extremes and non-finite ones stay.

    `keep` names further (attempt, step) to keep, such as the alarms. Each attempt gives its
    first and last point even when there are more attempts than `most` allows for.
    """
    if len(points) <= most:
        return list(points)
    attempts = [list(group) for _, group in groupby(points, key=lambda point: point.attempt)]
    room = max(most - 2 * len(attempts) - len(keep), 0)
    kept: list[CurvePoint] = []
    for group in attempts:
        inner = group[1:-1]
        chosen = _extremes(inner, buckets=room * len(inner) // len(points) // 3)
        named = [point for point in inner if (point.attempt, point.step) in keep]
        ends = {group[0], group[-1]}
        kept += sorted({*chosen, *named, *ends}, key=lambda point: point.step)
    return kept


def curve_png(
    points: Sequence[CurvePoint],
    alarms: Sequence[tuple[int, int, int]] = (),
    rollbacks: Sequence[tuple[int, int]] = (),
    evals: Sequence[CurvePoint] = (),
    *,
    width: int = 960,
    title: str = "",
) -> bytes:
    """The curve as a PNG, `width` pixels wide and drawn at twice that for sharp screens.

    `alarms` are (attempt, onset_step, alarm_step); `rollbacks` are (attempt, from_checkpoint)
    where attempt is the one that began at that checkpoint; `evals` are the losses of evaluations.
    Takes about 0.3 s, and the first call another second for the import of matplotlib.
    """
    # Imported here: matplotlib costs a second, and only the end of a run needs it.
    from runner.curve_picture import picture

    return picture(points, alarms, rollbacks, evals, width=width, title=title)


def curve_text(points: Sequence[CurvePoint], width: int = 60, height: int = 8) -> str:
    """The curve as text: `width` columns by `height` rows and a line for the step axis.

    Blocks are what counts, dots what a rollback threw away, `×` a loss that is not finite.
    """
    counting = {point.step: point for point in points if point.loss is not None}
    finite = [tame(loss) for point in points if is_finite(loss := point.loss)]
    if not finite:
        return "no finite loss was logged" if counting else "no loss was logged"
    labels = [_short(max(finite)), *[""] * (height - 2), _short(min(finite))][:height]
    margin = max(len(label) for label in labels)
    first, last = min(counting), max(counting)
    columns = max(min(width - margin - 2, last - first + 1), 1)
    column = {step: (step - first) * (columns - 1) // max(last - first, 1) for step in counting}
    share = _share_of_height(finite)

    rows = [[" "] * columns for _ in range(height)]
    for point in points:
        if point.loss is not None and point is not counting[point.step]:
            level = share(tame(point.loss)) if is_finite(point.loss) else 1.0
            mark = "·" if is_finite(point.loss) else "×"
            rows[round((1 - level) * (height - 1))][column[point.step]] = mark
    for place, loss in enumerate(_highest_by_column(counting, column, columns)):
        _fill_column(rows, place, share(tame(loss)) if math.isfinite(loss) else None)
    body = [f"{label:>{margin}} ▏{''.join(row)}" for label, row in zip(labels, rows, strict=True)]
    axis = f"{first}{last:>{max(columns - len(str(first)), 1)}}" if last > first else f"{first}"
    return "\n".join(line.rstrip() for line in [*body, " " * (margin + 2) + axis])


# Shared with the picture


def is_finite(loss: float | None) -> TypeGuard[float]:
    """Whether a loss is a number that an axis can show."""
    return loss is not None and math.isfinite(loss)


def tame(loss: float) -> float:
    """A finite loss within what an axis can compute with; nobody reads one of 1e30 or 1e-30."""
    return 0.0 if abs(loss) < 1e-30 else max(min(loss, 1e30), -1e30)


def scale_of(finite: Sequence[float]) -> Scale:
    """A log axis where it helps; symlog where it would but a loss is zero or negative."""
    low, high = min(finite), max(finite)
    if low > 0:
        return "log" if high / low >= LOG_FROM_RATIO else "linear"
    typical = statistics.median(abs(loss) for loss in finite)
    largest = max(high, -low)
    return "symlog" if typical > 0 and largest / typical >= LOG_FROM_RATIO else "linear"


# Helpers


def _number(value: float | str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None


def _short(value: float) -> str:
    return f"{value:.3g}"


def _share_of_height(finite: Sequence[float]) -> Callable[[float], float]:
    """A function from a loss to its place between the lowest (0) and the highest (1)."""
    scale = "log" if min(finite) > 0 else scale_of(finite)
    typical = statistics.median(abs(loss) for loss in finite)

    def squash(loss: float) -> float:
        if scale == "log":
            return math.log(loss)
        return math.asinh(loss / typical) if scale == "symlog" else loss

    low, high = squash(min(finite)), squash(max(finite))
    return lambda loss: (squash(loss) - low) / (high - low) if high > low else 0.5


def _extremes(points: Sequence[CurvePoint], buckets: int) -> list[CurvePoint]:
    """The lowest, the highest and the first non-finite point of each of `buckets` spans."""
    chosen: list[CurvePoint] = []
    for number in range(buckets):
        span = points[number * len(points) // buckets : (number + 1) * len(points) // buckets]
        finite = [point for point in span if is_finite(point.loss)]
        if finite:
            chosen.append(min(finite, key=lambda point: point.loss or 0.0))
            chosen.append(max(finite, key=lambda point: point.loss or 0.0))
        others = (p for p in span if p.loss is not None and not math.isfinite(p.loss))
        chosen += list(others)[:1]
    return chosen


def _highest_by_column(
    counting: Mapping[int, CurvePoint], column: Mapping[int, int], columns: int
) -> list[float]:
    """The highest loss of each text column, so that a single spike shows; NaN beats it.

    Steps may be further apart than columns (logging_steps): the last value is carried on.
    """
    highest: dict[int, float] = {}
    for step, point in counting.items():
        loss, place = math.nan if point.loss is None else point.loss, column[step]
        highest[place] = loss if math.isnan(loss) else max(loss, highest.get(place, loss))
    carried, losses = math.nan, []
    for place in range(columns):
        carried = highest.get(place, carried)
        losses.append(carried)
    return losses


def _fill_column(rows: list[list[str]], place: int, share: float | None) -> None:
    """Fill one text column from below up to `share` of the height, in eighths of a row."""
    if share is None:
        rows[0][place] = "×"
        return
    eighths = 1 + round(share * (len(rows) * 8 - 1))
    for number, row in enumerate(reversed(rows)):
        part = min(eighths - number * 8, 8)
        if part > 0:
            row[place] = BARS[part - 1]
