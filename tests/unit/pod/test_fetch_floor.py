"""When a transfer is too slow."""

from __future__ import annotations

from pod.fetch.floor import Floor


class Moment:
    """A clock that is set."""

    def __init__(self) -> None:
        self.t = 100.0

    def __call__(self) -> float:
        return self.t


def test_a_whole_window_below_the_floor_breaks_it() -> None:
    """Not a second earlier; what came before the window does not help (H25)."""
    clock = Moment()
    floor = Floor(1000, 60, clock=clock)
    for second in range(1, 31):
        clock.t += 1
        floor.hear(second * 1_000_000)
    assert floor.speed == 1_000_000
    for _ in range(59):
        clock.t += 1
        floor.hear(30_000_000)
        assert not floor.broken
    clock.t += 2
    floor.hear(30_000_000)
    assert floor.broken


def test_silence_counts_as_nothing() -> None:
    """A process that does not say a word any more."""
    clock = Moment()
    floor = Floor(1000, 60, clock=clock)
    clock.t += 61
    assert floor.broken


def test_slow_and_steady_is_good_enough() -> None:
    """Just above the floor for an hour."""
    clock = Moment()
    floor = Floor(1000, 60, clock=clock)
    for second in range(1, 3601):
        clock.t += 1
        floor.hear(second * 1001)
        assert not floor.broken


def test_a_wait_that_is_known_does_not_count() -> None:
    """A hub that says when it may be asked again."""
    clock = Moment()
    floor = Floor(1000, 60, clock=clock)
    clock.t += 59
    floor.pause()
    clock.t += 59
    assert not floor.broken
    clock.t += 2
    assert floor.broken
