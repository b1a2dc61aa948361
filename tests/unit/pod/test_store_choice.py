"""Which checkpoints are worth their storage."""

from __future__ import annotations

from pathlib import Path

from pod import events
from pod.reporter import PROVEN_AFTER
from pod.rundir import RunDir
from pod.store.choice import condemned, proven_step, recorded, wanted
from tests.stores import make_checkpoint, train


def test_the_newest_few_and_a_proven_one_are_wanted() -> None:
    """And the next that will be proven, so that the old one is let go some day."""
    assert wanted({10, 20, 30, 40, 50}, proven=0) == {30, 40, 50, 10}
    assert wanted({10, 20, 30, 40, 50}, proven=25) == {30, 40, 50, 20}
    assert wanted({10, 50, 60, 70}, proven=12) == {10, 50, 60, 70}
    assert wanted({10}, proven=0) == {10}
    assert wanted(set(), proven=0) == set()


def test_a_long_run_never_holds_more_than_five() -> None:
    """Saves every 10 steps, certain after 100: the proven one follows, two steps behind at most."""
    held: set[int] = set()
    for step in range(10, 2001, 10):
        held = wanted({*held, step}, proven=max(0, step - 100))
        assert len(held) <= 5
        assert min(held) <= max(10, step - 100)
    assert min(held) >= 1700


def test_a_step_is_proven_when_enough_entries_came_after_it(tmp_path: Path) -> None:
    """Counted on the branch that was kept, like the reporter does."""
    run_dir = RunDir(tmp_path)
    entries = max(PROVEN_AFTER)
    train(run_dir, range(1, entries + 1), every=1000)
    assert proven_step(events.read(run_dir.events)[0]) == 0
    train(run_dir, range(entries + 1, entries + 8), every=1000)
    assert proven_step(events.read(run_dir.events)[0]) == 7
    train(run_dir, range(51, 56), attempt=2, every=1000)  # sent back to step 50
    assert proven_step(events.read(run_dir.events)[0]) == 0


def test_only_recorded_healthy_checkpoints_are_seen(tmp_path: Path) -> None:
    """What is not hashed yet, or was saved while the loss looked odd, is not worth an upload."""
    run_dir = RunDir(tmp_path)
    make_checkpoint(run_dir, 10)
    make_checkpoint(run_dir, 20, health="suspect")
    make_checkpoint(run_dir, 30, health=None)
    assert list(recorded(run_dir)) == [10]


def test_an_alarm_condemns_what_its_attempt_saved_from_the_onset_on(tmp_path: Path) -> None:
    """Those before it stay, and so does what a later attempt saved of the same steps."""
    run_dir = RunDir(tmp_path)
    for step in (10, 20, 30):
        make_checkpoint(run_dir, step)
    make_checkpoint(run_dir, 40, attempt=2)
    stored = {step: manifest for step, (_, manifest) in recorded(run_dir).items()}
    alarm = {"kind": "alarm", "attempt": 1, "step": 33, "onset_step": 20}
    assert condemned(run_dir, [alarm], stored) == {20, 30}
    assert condemned(run_dir, [], stored) == set()
