"""The loss curve as points, picture and text."""

from __future__ import annotations

import io
import math
from typing import Any

import pytest

from runner.curve import (
    CurvePoint,
    curve_png,
    curve_points,
    curve_text,
    eval_points,
    scale_of,
    thin,
)

NAN, INF = math.nan, math.inf


def _curve(*losses: float | None, attempt: int = 1, first: int = 1) -> list[CurvePoint]:
    return [CurvePoint(attempt, first + place, loss) for place, loss in enumerate(losses)]


def _event(**changes: Any) -> dict[str, Any]:
    return {"kind": "step", "t": 0.0, "attempt": 1, "step": 1, "loss": 2.0, **changes}


def test_points_come_from_step_events_alone() -> None:
    """Evaluations, alarms and foreign lines are no points of the curve (case H42)."""
    events = [
        _event(),
        _event(kind="eval", eval_loss=9.0),
        _event(kind="alarm", step=2),
        _event(step="x"),
        _event(step=2, loss="nan"),
        _event(step=3, loss=None),
        _event(step=4, loss="what"),
    ]
    assert [point.step for point in curve_points(events)] == [1, 2, 3, 4]
    assert [point.loss for point in curve_points(events)] == pytest.approx(
        [2.0, NAN, None, None], nan_ok=True
    )


def test_points_are_in_order_and_a_repeated_step_counts_as_last_seen() -> None:
    """Steps that go back, as after a rewind, neither double nor disorder the curve (case H44)."""
    events = [_event(step=2), _event(attempt=2), _event(step=1, loss=3.0), _event(step=2, loss=1.0)]
    assert curve_points(events) == [*_curve(3.0, 1.0), CurvePoint(2, 1, 2.0)]


def test_evaluations_are_points_of_their_own() -> None:
    """One that told no loss, as of a generation, is none."""
    events = [
        _event(),
        _event(kind="eval", step=2, eval_loss=1.5),
        _event(kind="eval", step=4, eval_runtime=3.0),
        _event(kind="eval", step=6, eval_loss="nan"),
    ]
    first, last = eval_points(events)
    assert (first.step, first.loss, last.step) == (2, 1.5, 6)
    assert math.isnan(last.loss or 0.0)


def test_a_short_curve_is_not_thinned() -> None:
    """What fits stays as it is."""
    points = _curve(*range(400))
    assert thin(points) == points


def test_thinning_keeps_ends_extremes_gaps_and_named_points() -> None:
    """A spike of one step among 100,000 is still there, and so is the point of the alarm."""
    losses = [1.0] * 100_000
    losses[70_000], losses[80_000], losses[90_000] = 50.0, NAN, -3.0
    points = _curve(*losses) + _curve(*[0.5] * 50, attempt=2, first=60_000)
    thinned = thin(points, most=400, keep={(1, 70_003)})
    assert len(thinned) <= 400
    assert {(1, 1), (1, 100_000), (2, 60_000), (2, 60_049)} <= {
        (point.attempt, point.step) for point in thinned
    }
    assert {70_001, 70_003, 80_001, 90_001} <= {point.step for point in thinned}
    assert thinned == sorted(thinned, key=lambda point: (point.attempt, point.step))


@pytest.mark.parametrize(
    ("losses", "scale"),
    [
        ([3.0, 2.0, 1.0], "linear"),
        ([3.0, 2.0, 90.0], "log"),
        ([3.0, 2.0, 0.0], "linear"),
        ([-0.2, -0.3, 40.0], "symlog"),
        ([0.0, 0.0], "linear"),
        ([1e308, 1e-308], "log"),
    ],
)
def test_the_axis_is_logarithmic_only_where_it_helps(losses: list[float], scale: str) -> None:
    """A collapse to zero and the negative losses of RL can't be on a log axis."""
    assert scale_of(losses) == scale


ROLLED_BACK = _curve(3, 2.8, 2.5, 9, 80) + _curve(2.4, 2.2, 2.0, attempt=2, first=4)


@pytest.mark.parametrize(
    ("points", "alarms", "rollbacks"),
    [
        (ROLLED_BACK, [(1, 4, 5)], [(2, 3)]),
        ([], [], []),
        (_curve(2.0), [], []),
        (_curve(NAN, INF, None), [(1, 1, 1)], []),
        (_curve(2.0, 1.0, 0.0, 0.0, NAN, -INF, None, 1e308), [(1, 3, 6)], [(2, 2), (3, 0)]),
        (_curve(-1.0, -0.9, 700.0), [(1, 3, 3)], []),
        (_curve(*(2 + math.sin(step) for step in range(100_000))), [(9, 5, 9)], [(9, 1)]),
    ],
)
def test_every_curve_has_a_picture(
    points: list[CurvePoint], alarms: list[tuple[int, int, int]], rollbacks: list[tuple[int, int]]
) -> None:
    """No loss, one loss, losses that are not finite or far apart: always a PNG, no warning."""
    image = pytest.importorskip("PIL.Image")
    png = curve_png(points, alarms, rollbacks, width=480, title="$a_b$ \u6a21")
    picture = image.open(io.BytesIO(png))
    assert picture.size == (960, 403)
    assert len(png) < 250_000
    # A light card with nothing around it: readable on light pages and on dark ones.
    assert picture.getpixel((0, 0))[3] == 0
    assert min(picture.getpixel((480, 12))) > 240


def test_the_picture_shows_alarm_and_rollback() -> None:
    """Their colours are in the picture only when they are in the run."""
    image = pytest.importorskip("PIL.Image")

    def has_alarm_colour(png: bytes) -> bool:
        colours = image.open(io.BytesIO(png)).convert("RGB").getcolors(1 << 24)
        return (0xD5, 0x5E, 0x00) in {colour for _, colour in colours}

    assert has_alarm_colour(curve_png(ROLLED_BACK, [(1, 4, 5)], [(2, 3)], width=480))
    assert not has_alarm_colour(curve_png(ROLLED_BACK, width=480))


def test_the_text_shows_what_counts_as_blocks_and_what_was_thrown_away_as_dots() -> None:
    """Attempt 2 took over from step 4; the spike of attempt 1 is dots above it."""
    text = curve_text(ROLLED_BACK, width=40, height=4)
    assert text.splitlines() == [
        "80 ▏    ·",
        "   ▏",
        "   ▏   ·",
        " 2 ▏▄▄▃▃▂▁",
        "    1    6",
    ]


def test_evaluations_that_were_thrown_away_are_not_drawn() -> None:
    """Those of steps that a later attempt went back behind say nothing about the model."""
    kept, thrown = CurvePoint(1, 2, 2.9), CurvePoint(1, 5, 60.0)
    plain = curve_png(ROLLED_BACK, rollbacks=[(2, 3)], width=480)
    assert curve_png(ROLLED_BACK, (), [(2, 3)], [kept], width=480) != plain
    both = curve_png(ROLLED_BACK, (), [(2, 3)], [kept, thrown], width=480)
    assert both == curve_png(ROLLED_BACK, (), [(2, 3)], [kept], width=480)


def test_alarms_close_together_have_labels_apart() -> None:
    """Two attempts that break at the same place, as a bad row makes them."""
    points = [*ROLLED_BACK, CurvePoint(2, 7, 79.0)]
    near = curve_png(points, [(1, 5, 5), (2, 7, 7)], [(2, 3)], width=960)
    assert near != curve_png(points, [(1, 5, 5)], [(2, 3)], width=960)


@pytest.mark.parametrize("height", [1, 3, 8])
@pytest.mark.parametrize(
    "points",
    [
        _curve(2.0),
        _curve(2.0, NAN, INF, None, 0.0, -1e308, 1e308),
        [CurvePoint(1, step * 10, 3.0 / step) for step in range(1, 2000)],
        ROLLED_BACK,
    ],
)
def test_the_text_keeps_to_its_size(points: list[CurvePoint], height: int) -> None:
    """`height` rows and an axis, none wider than asked for."""
    lines = curve_text(points, width=50, height=height).splitlines()
    assert len(lines) == height + 1
    assert max(map(len, lines)) <= 50


def test_a_curve_without_a_number_says_so_in_text() -> None:
    """There is no axis to draw."""
    assert curve_text([]) == curve_text(_curve(None)) == "no loss was logged"
    assert curve_text(_curve(NAN)) == "no finite loss was logged"
