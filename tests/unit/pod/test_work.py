"""Whether a process is seen to work; counters are given, except in the last test."""

from __future__ import annotations

import os

import pytest

from pod.work import Counters, Work, counters


class Machine:
    """Processes whose counters the test sets, and a clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.done: dict[int, Counters | None] = {1: Counters(0.0, 0.0)}
        self.work = Work(lambda: list(self.done), count=self.done.__getitem__, clock=self.clock)

    def clock(self) -> float:
        return self.now

    def after(self, seconds: float, **more: float) -> bool:
        """Busy or not, after process 1 did so much more."""
        self.now += seconds
        before = self.done[1]
        assert before is not None
        self.done[1] = Counters(
            before.cpu + more.get("cpu", 0.0), before.bytes + more.get("moved", 0.0)
        )
        return self.work.busy()


def test_computing_reading_and_writing_are_work() -> None:
    """One of them suffices; a minute decides."""
    machine = Machine()
    assert machine.after(0.0)
    assert machine.after(60.0, cpu=30.0)
    assert machine.after(60.0, moved=60e6)
    assert not machine.after(60.0, cpu=0.5, moved=5e5)


def test_what_a_tracker_does_is_no_work() -> None:
    """It wakes up every 15 s: in the minute that is little, whenever one looks."""
    machine = Machine()
    machine.after(0.0)
    seen = [machine.after(1.0, cpu=0.3 * (n % 15 == 0), moved=1e5 * (n % 15 == 0))
            for n in range(200)]  # fmt: skip
    assert seen[:50] == [True] * 50  # nothing is known yet
    assert not any(seen[70:])


def test_a_new_process_is_work_and_a_gone_one_is_none() -> None:
    """Counters of a process that has ended are no negative work."""
    machine = Machine()
    machine.done[2] = Counters(500.0, 1e9)
    machine.after(0.0)
    del machine.done[2]
    assert not machine.after(60.0)
    machine.done[3] = Counters(20.0, 0.0)
    assert machine.after(60.0)


def test_what_cannot_be_seen_counts_as_work() -> None:
    """Processes of another user: unknown is not idle."""
    machine = Machine()
    machine.after(0.0)
    machine.done[1] = None
    machine.now += 60.0
    assert machine.work.busy()


def test_the_counters_of_a_real_process_grow() -> None:
    """CPU seconds and bytes, of this one."""
    before = counters(os.getpid())
    assert before is not None
    with open(os.devnull, "wb", buffering=0) as nothing:
        for _ in range(20):
            nothing.write(bytes(1_000_000))
    after = counters(os.getpid())
    assert after is not None
    assert after.bytes - before.bytes >= 20e6
    assert after.cpu >= before.cpu
    assert counters(2**22 + 1) is None


@pytest.mark.parametrize("pid", [1, os.getpid()])
def test_counters_never_raise(pid: int) -> None:
    """Whoever's process it is."""
    counters(pid)
