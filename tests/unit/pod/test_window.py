"""Which steps a post-mortem looks at."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pod.events import Event
from pod.window import Window, window_of


def event(kind: str, step: int, *, attempt: int = 1, **fields: Any) -> Event:
    return {"kind": kind, "t": 0.0, "attempt": attempt, "step": step, **fields}


def trained(*norms: float | None, first: int = 20) -> list[Event]:
    return [
        event("step", first + i, lr=0.001 * (first + i), grad_norm=norm)
        for i, norm in enumerate(norms)
    ]


def test_the_window_begins_a_step_before_the_onset() -> None:
    """A loss is computed before its step changes the weights."""
    past = [*trained(1.0, 2.0, 9.0, 5.0), event("alarm", 23, onset_step=22)]
    assert window_of(past, attempt=1) == Window(1, 21, 23, 23, lr=0.021, grad_norm=9.0)


@pytest.mark.parametrize(
    ("norms", "highest"), [((1.0, math.nan, 3.0), math.nan), ((None, None, None), None)]
)
def test_a_norm_that_is_no_number_is_the_highest(
    norms: tuple[float | None, ...], highest: float | None
) -> None:
    """It says the most."""
    found = window_of([*trained(*norms), event("alarm", 22, onset_step=21)], attempt=1)
    assert found is not None
    assert str(found.grad_norm) == str(highest)


def test_only_an_attempt_with_an_alarm_has_a_window() -> None:
    """The alarm of another attempt is another matter; the first step is step 1."""
    past = [event("alarm", 3, onset_step=1)]
    assert window_of(past, attempt=2) is None
    found = window_of(past, attempt=1)
    assert found is not None
    assert (found.first, found.last, found.lr) == (1, 3, None)
