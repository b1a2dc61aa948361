from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from runner.deadlines import Deadline, first_deadline
from runner.settings import RunnerSettings
from runner.sweeping import EndPod, EndRun, Leave, Standing, Tell, judge

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LONG_AGO = NOW - timedelta(hours=1)


def _judge(run: Standing, *, due: Any = None, passed: float | None = None) -> object:
    deadline = None if passed is None else Deadline(NOW - timedelta(seconds=passed), "time is up")
    return judge(run, deadline, due, 15, NOW)


@pytest.mark.parametrize(
    ("run", "does"),
    [
        (Standing(), Leave),
        (Standing(known=False, foreign=True), Leave),
        (Standing(known=False), EndPod),
        (Standing(ended=LONG_AGO), EndPod),
        (Standing(ended=NOW - timedelta(seconds=30)), Leave),  # a hook may be at it
        (Standing(ended=LONG_AGO, kept=True), Leave),
        (Standing(ended=LONG_AGO, left_to_guard=True), Leave),
    ],
)
def test_a_pod_stays_as_long_as_somebody_needs_it(run: Standing, does: type) -> None:
    """The pods of other installations are never touched."""
    assert isinstance(_judge(run), does)


def test_an_idle_pod_is_told_then_its_run_is_ended() -> None:
    """In the middle of a training it is a hang; a pod that was kept is simply given back."""
    assert isinstance(_judge(Standing(), due="tell"), Tell)
    ends = [_judge(Standing(training=training), due="end") for training in (True, False)]
    assert [end.outcome for end in ends if isinstance(end, EndRun)] == ["hang", "crash"]
    assert isinstance(_judge(Standing(ended=LONG_AGO, kept=True), due="end"), EndPod)
    assert isinstance(_judge(Standing(decided=True), due="end"), Leave)


def test_a_deadline_holds_for_every_run() -> None:
    """H16: also for kept pods and for those whose guard has failed; its own parent comes first."""
    assert isinstance(_judge(Standing(), passed=30), Leave)
    ended = _judge(Standing(), passed=90)
    assert ended == EndRun("deadline", "time is up")
    assert isinstance(_judge(Standing(decided=True), passed=90), Leave)
    for kept in (Standing(ended=NOW, kept=True), Standing(ended=NOW, left_to_guard=True)):
        assert isinstance(_judge(kept, passed=0), EndPod)
    assert isinstance(_judge(Standing(known=False, foreign=True), passed=90), Leave)


@pytest.mark.parametrize(
    ("settings", "at", "why"),
    [
        ({"max_hours": 2}, 7200, "not done within max_hours: 2"),
        ({"max_hours": 2, "stop_after": 60}, 3660, "its pod has had its stop_after: 60 s"),
        (
            {"max_hours": 2, "terminate_after": 99},
            3699,
            "its pod has had its terminate_after: 99 s",
        ),
        ({"max_hours": 2, "stop_after": -1, "terminate_after": -1}, 7200, "max_hours"),
        ({"max_hours": 2, "terminate_after": 86400}, 7200, "max_hours"),
    ],
)
def test_the_timers_keep_their_meaning(settings: dict[str, int], at: int, why: str) -> None:
    """H16: seconds from the pod's creation (here an hour after the run began), -1 for never; none
    lifts max_hours.
    """
    first = first_deadline(RunnerSettings(**settings), NOW, NOW + timedelta(hours=1))  # type: ignore[arg-type]
    assert first.at == NOW + timedelta(seconds=at)
    assert why in first.why
