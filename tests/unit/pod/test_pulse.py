"""The pulse: written by a thread, read by whoever follows."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pod.pulse import Heart, Pulse, read_pulse
from pod.rundir import RunDir


@pytest.fixture
def folder(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path)


def wait_for(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 5
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_change_of_phase_is_written_at_once(folder: RunDir) -> None:
    """Sooner than the second that steps may wait."""
    heart = Heart(folder, clock=lambda: 12.5)
    began = time.monotonic()
    heart.enter("loading")
    wait_for(lambda: read_pulse(folder) == Pulse(12.5, 0, "loading"))
    heart.enter("evaluating", 20)
    wait_for(lambda: read_pulse(folder) == Pulse(12.5, 20, "evaluating"))
    assert time.monotonic() - began < 0.9


def test_a_step_writes_nothing_by_itself(folder: RunDir) -> None:
    """A step costs no disk: the thread comes by once a second, and the last step is never lost."""
    times = iter(range(10_000))
    heart = Heart(folder, clock=lambda: float(next(times)))
    heart.enter("training", 0)
    wait_for(lambda: read_pulse(folder))
    for step in range(1, 1001):
        heart.enter("training", step)
        heart.beat()
    heart.write()  # the thread's turn
    assert read_pulse(folder) == Pulse(2000.0, 1000, "training")
    before = folder.pulse.stat().st_mtime_ns
    heart.write()  # nothing new
    assert folder.pulse.stat().st_mtime_ns == before


def test_a_step_costs_microseconds(folder: RunDir) -> None:
    """A hundredth of the shortest step (70 ms on the tiny model) is 700 of them."""
    heart = Heart(folder)
    heart.enter("training", 0)
    took = []
    for step in range(2000):
        began = time.perf_counter()
        heart.enter("training", step)
        heart.beat()
        heart.enter("training", step + 1)
        took.append(time.perf_counter() - began)
    assert sorted(took)[1000] < 50e-6


def test_only_the_first_rank_writes(folder: RunDir) -> None:
    """The others live and die with it."""
    heart = Heart(folder, writes=False)
    heart.enter("training", 3)
    heart.write()
    assert read_pulse(folder) is None


def test_a_wrapped_function_begins_its_phase(folder: RunDir) -> None:
    """The phase lasts until the next one begins; what the function returns or raises passes."""
    heart = Heart(folder)

    def save(step: int) -> int:
        heart.write()
        assert read_pulse(folder) == seen._replace(phase="saving", t=read_now().t)
        if step < 0:
            raise ValueError(step)
        return step

    def read_now() -> Pulse:
        found = read_pulse(folder)
        assert found is not None
        return found

    heart.enter("training", 7)
    heart.write()
    seen = read_now()
    saving = heart.during("saving", save)
    assert saving(5) == 5
    assert read_now().phase == "saving"
    with pytest.raises(ValueError, match="-1"):
        saving(-1)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"t": 1, "step": 2, "phase": "sleeping"}'])
def test_a_broken_file_is_no_pulse(folder: RunDir, text: str) -> None:
    """Of a full disk, or of another version."""
    folder.pulse.write_text(text)
    assert read_pulse(folder) is None
