"""Draws the loss curve with matplotlib; used through runner.curve.curve_png."""

from __future__ import annotations

import io
import math
import statistics
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font
from matplotlib.patches import FancyBboxPatch
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, ScalarFormatter

from runner.curve import CurvePoint, is_finite, scale_of, tame, thin

# Okabe-Ito without its yellow and black: told apart by colour-blind readers too.
ATTEMPT_COLOURS = ("#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
ALARM_COLOUR = "#D55E00"
INK, MUTED, GRID = "#22272e", "#6b7280", "#e5e7eb"
# A card of its own: readable on a light page and on a dark one.
PAPER, EDGE = "#fcfcfd", "#d0d7de"

# Points between the labels of two alarms, and how far apart they may lie to be in each other's way.
LABEL_HEIGHT, LABEL = 12.0, 110.0

# A longer curve is mostly noise of single batches: drawn faint under its trend.
SMOOTH_FROM = 300

PEN: dict[str, Any] = {
    "linewidth": 1.8,
    "markersize": 3.2,
    "solid_capstyle": "round",
    "solid_joinstyle": "round",
}


def picture(
    points: Sequence[CurvePoint],
    alarms: Sequence[tuple[int, int, int]],
    rollbacks: Sequence[tuple[int, int]],
    evals: Sequence[CurvePoint] = (),
    *,
    width: int,
    title: str,
) -> bytes:
    """The PNG that curve_png promises."""
    # Figure and canvas by hand, not pyplot: no global state, usable in any thread.
    figure = Figure(figsize=(width / 100, width * 0.42 / 100), dpi=200, facecolor="none")
    FigureCanvasAgg(figure)
    _draw_card(figure)
    axes = figure.add_axes((0.068, 0.135, 0.905, 0.725 if title else 0.8))
    _dress(axes, title)
    if any(is_finite(point.loss) for point in points):
        _draw(axes, points, alarms, rollbacks, evals)
    else:
        axes.set_axis_off()
        message = "no finite loss was logged" if points else "no loss was logged"
        axes.text(0.5, 0.5, message, transform=axes.transAxes, ha="center", color=MUTED)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _draw_card(figure: Figure) -> None:
    """The paper under it all: a card with round corners and nothing around it."""
    width, height = figure.get_size_inches()
    card = FancyBboxPatch(
        (0.01, 0.01),
        width - 0.02,
        height - 0.02,
        boxstyle="round,pad=0,rounding_size=0.1",
        facecolor=PAPER,
        edgecolor=EDGE,
        linewidth=0.8,
        transform=figure.dpi_scale_trans,
        zorder=-1,
    )
    figure.add_artist(card)


def _dress(axes: Axes, title: str) -> None:
    """Quiet axes: two spines, a light grid for the losses, the title at the left."""
    axes.set_facecolor("none")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(GRID)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=MUTED, labelsize=8, length=0)
    axes.set_xlabel("step", color=MUTED, fontsize=8.5)
    # parse_math off: a dollar sign in a task's name is not a formula.
    axes.set_title(
        _drawable(title),
        loc="left",
        color=INK,
        fontsize=11,
        weight="bold",
        pad=10,
        parse_math=False,
    )


def _drawable(text: str) -> str:
    """Characters that the font lacks become `?`; matplotlib warns of each of them otherwise."""
    font = get_font(findfont("DejaVu Sans"))
    return "".join(char if font.get_char_index(ord(char)) else "?" for char in text)


def _draw(
    axes: Axes,
    points: Sequence[CurvePoint],
    alarms: Sequence[tuple[int, int, int]],
    rollbacks: Sequence[tuple[int, int]],
    evals: Sequence[CurvePoint],
) -> None:
    shown = [*points, *evals]
    _set_scale(axes, [tame(loss) for point in shown if is_finite(loss := point.loss)])
    steps = [point.step for point in points]
    reach = max(steps) - min(steps) or 1
    # The label of an alarm stands at its right: the arrow back bends away to the left.
    late = any(alarm > min(steps) + 0.85 * reach for _, _, alarm in alarms)
    axes.set_xlim(min(steps) - 0.02 * reach, max(steps) + (0.19 if late else 0.02) * reach)
    stride = reach / 150 if len(points) > SMOOTH_FROM else 0.0
    attempts = sorted({point.attempt for point in points})
    for number, attempt in enumerate(attempts):
        own = [p for p in points if p.attempt == attempt and p.loss is not None]
        later = [step for other, step in rollbacks if other > attempt]
        colour = ATTEMPT_COLOURS[number % len(ATTEMPT_COLOURS)]
        kept_to = min(later, default=None)
        _draw_attempt(axes, own, colour, f"attempt {attempt}", kept_to, stride)
    _draw_evals(axes, evals, rollbacks)
    named = sorted({checkpoint for _, checkpoint in rollbacks})
    for attempt, checkpoint in sorted(rollbacks):
        row = named.index(checkpoint) % 2
        first = attempt == min(owner for owner, back in rollbacks if back == checkpoint)
        _draw_rollback(axes, points, alarms, attempt, checkpoint, row=row if first else None)
    _draw_alarms(axes, points, alarms)
    if len(attempts) > 1 or evals:
        axes.legend(
            loc="lower right",
            bbox_to_anchor=(1.005, 1.0),
            borderaxespad=0.3,
            ncols=6,
            frameon=False,
            fontsize=8.5,
            labelcolor=MUTED,
            handlelength=1.4,
            columnspacing=1.4,
        )


def _set_scale(axes: Axes, finite: Sequence[float]) -> None:
    scale, low, high = scale_of(finite), min(finite), max(finite)
    if scale == "log":
        axes.set_yscale("log")
        ratio = high / low
        axes.set_ylim(low / ratio**0.14, high * ratio**0.16)
        if ratio < 1e3:
            axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        if low >= 1e-3 and high <= 1e4:
            axes.yaxis.set_major_formatter(ScalarFormatter())
    elif scale == "symlog":
        axes.set_yscale("symlog", linthresh=statistics.median(abs(loss) for loss in finite) * 2)
    else:
        span = (high - low) or abs(high) or 1.0
        axes.set_ylim(low - 0.14 * span, high + 0.16 * span)
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylabel("loss" if scale == "linear" else "loss (log)", color=MUTED, fontsize=8.5)
    axes.xaxis.set_major_locator(
        MaxNLocator(nbins=10, integer=True, min_n_ticks=1, steps=[1, 2, 2.5, 5, 10])
    )


def _draw_attempt(
    axes: Axes,
    points: Sequence[CurvePoint],
    colour: str,
    label: str,
    kept_to: int | None,
    stride: float,
) -> None:
    """The part up to `kept_to` in full colour, the part thrown away by a rollback faint."""
    kept = [point for point in points if kept_to is None or point.step <= kept_to]
    thrown = points[max(len(kept) - 1, 0) :] if len(kept) < len(points) else []
    # Few points are shown each, and a lone one has no line.
    style: dict[str, Any] = {
        "marker": "o" if len(points) <= 40 else "",
        "color": colour,
        "label": label,
    }
    if stride:
        axes.plot(*_line(kept), color=colour, linewidth=0.6, alpha=0.3)
    axes.plot(*(_trend(kept, stride) if stride else _line(kept)), **PEN, **style)
    pen = {**PEN, "linewidth": 1.0 if stride else PEN["linewidth"]}
    axes.plot(*_line(thrown), **pen, **{**style, "alpha": 0.45 if stride else 0.35, "label": None})
    broken = [point.step for point in points if not is_finite(point.loss)]
    top = axes.get_xaxis_transform()
    axes.plot(broken, [0.97] * len(broken), "x", color=ALARM_COLOUR, markersize=5, transform=top)


def _draw_evals(
    axes: Axes, evals: Sequence[CurvePoint], rollbacks: Sequence[tuple[int, int]]
) -> None:
    """The evaluations that count: those of steps that no later attempt went back behind."""
    kept = [
        point
        for point in evals
        if is_finite(point.loss)
        and all(point.step <= back for later, back in rollbacks if later > point.attempt)
    ]
    axes.plot(
        *_line(sorted(kept, key=lambda point: point.step)),
        color=INK,
        linewidth=1.1,
        linestyle=(0, (3, 2)),
        marker="o",
        markersize=4,
        markerfacecolor=PAPER,
        markeredgewidth=1.1,
        label="eval loss" if kept else None,
        zorder=3.5,
    )


def _line(points: Sequence[CurvePoint]) -> tuple[list[int], list[float]]:
    """Steps and losses, thinned; a loss that is not finite breaks the line."""
    shown = thin(points, most=2000)
    losses = [tame(loss) if is_finite(loss := point.loss) else math.nan for point in shown]
    return [point.step for point in shown], losses


def _trend(points: Sequence[CurvePoint], stride: float) -> tuple[list[int], list[float]]:
    """The medians of the finite losses in each span of `stride` steps, at the spans' middles."""
    steps, losses = [], []
    for _, group in groupby(points, key=lambda point: point.step // stride):
        span = [(p.step, tame(loss)) for p in group if is_finite(loss := p.loss)]
        if span:
            steps.append(span[len(span) // 2][0])
            losses.append(statistics.median(loss for _, loss in span))
    return steps, losses


def _draw_alarms(
    axes: Axes, points: Sequence[CurvePoint], alarms: Sequence[tuple[int, int, int]]
) -> None:
    """Each alarm; labels of alarms that lie close together stand one under the other."""
    placed: list[tuple[float, float]] = []  # of the labels, in the picture's own points

    def height(alarm: tuple[int, int, int]) -> float:
        return _height(axes, _loss_at(points, alarm[0], alarm[2]))

    for alarm in sorted(alarms, key=height, reverse=True):
        x, y = axes.transData.transform((alarm[2], height(alarm))) * 72 / axes.figure.dpi
        free = min([y, *(above - LABEL_HEIGHT for at, above in placed if abs(at - x) < LABEL)])
        placed.append((x, free))
        _draw_alarm(axes, points, *alarm, down=free - y)


def _draw_alarm(
    axes: Axes,
    points: Sequence[CurvePoint],
    attempt: int,
    onset: int,
    alarm: int,
    *,
    down: float,
) -> None:
    """A tint from onset to alarm, and a ring with the step at the alarm's own point."""
    axes.axvspan(onset, alarm, color=ALARM_COLOUR, alpha=0.10, linewidth=0)
    loss = _loss_at(points, attempt, alarm)
    y = _height(axes, loss)
    axes.plot(
        [alarm],
        [y],
        "o",
        markersize=8,
        color="white",
        markeredgecolor=ALARM_COLOUR,
        markeredgewidth=2,
        zorder=5,
    )
    axes.annotate(
        f"alarm, step {alarm}" + ("" if is_finite(loss) else " (not finite)"),
        (alarm, y),
        xytext=(9, down),
        textcoords="offset points",
        ha="left",
        va="center",
        color=ALARM_COLOUR,
        fontsize=8.5,
        weight="bold",
        zorder=6,
    )


def _draw_rollback(
    axes: Axes,
    points: Sequence[CurvePoint],
    alarms: Sequence[tuple[int, int, int]],
    attempt: int,
    checkpoint: int,
    row: int | None,
) -> None:
    """An arrow from where the attempt before ended back to the checkpoint it resumed from.

    `row` of the checkpoint's label; None where it has one.
    """
    before = [point for point in points if point.attempt < attempt and point.loss is not None]
    if not before:
        return
    last = max(point.attempt for point in before)
    end = max(point.step for point in before if point.attempt == last)
    start = next((alarm for owner, _, alarm in reversed(alarms) if owner == last), end)
    y_start = _height(axes, _loss_at(before, last, start))
    y_back = _height(axes, _loss_at(before, last, checkpoint))
    # The arrow bends away from the curve, and the label stands on the other side of it.
    side = 1 if y_start >= y_back else -1
    axes.annotate(
        "",
        (checkpoint, y_back),
        (start, y_start),
        zorder=4,
        arrowprops={
            "arrowstyle": "-|>,head_width=0.25,head_length=0.5",
            "color": INK,
            "linewidth": 1.3,
            "connectionstyle": f"arc3,rad={0.25 * side}",
            "shrinkA": 6,
            "shrinkB": 6,
        },
    )
    axes.plot(
        [checkpoint],
        [y_back],
        "D",
        markersize=5.5,
        color="white",
        markeredgecolor=INK,
        markeredgewidth=1.5,
        zorder=5,
    )
    if row is None:
        return
    # Two rows of labels: checkpoints of neighbouring rollbacks lie close together.
    axes.annotate(
        f"checkpoint {checkpoint}",
        (checkpoint, y_back),
        xytext=(0, -side * (15 + 11 * row)),
        textcoords="offset points",
        ha="center",
        va="center",
        color=INK,
        fontsize=8.5,
        zorder=6,
    )


def _loss_at(points: Sequence[CurvePoint], attempt: int, step: int) -> float | None:
    """The loss logged at `step` or next before it, by `attempt` or one before."""
    near = [p for p in points if p.attempt <= attempt and p.step <= step and p.loss is not None]
    nearest = max(near, key=lambda p: (p.step, p.attempt), default=None)
    return None if nearest is None else nearest.loss


def _height(axes: Axes, loss: float | None) -> float:
    """Where a loss is on the axis; one that is not finite is at the top, by its cross."""
    if is_finite(loss):
        return tame(loss)
    point = axes.transData.inverted().transform(axes.transAxes.transform((0.0, 0.97)))
    return float(point[1])
