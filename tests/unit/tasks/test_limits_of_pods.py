import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from runner.errors import TrainingFailed
from runner.taskfile import parse_task_file
from tasks.limits import check_timers
from tasks.run import Order, Run

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
RUN = Run("run", "x.yml", None, BEGAN)


def _check(settings: str, *, created: float, now: float, gone: float | None = None) -> None:
    """Minutes after the run began."""

    def at(minutes: float) -> str:
        return (BEGAN + timedelta(minutes=minutes)).isoformat()

    bill: dict[str, Any] = {"cloud": "runpod", "created": at(created), "price_per_hour": 1.0}
    bill["terminated"] = None if gone is None else at(gone)
    order = Order(parse_task_file(f"base_model: x\nrunner: {settings}\n", "x.yml"), ("runpod",))
    known = {"pod.p1": json.dumps(bill)}
    check_timers(RUN, order, known, BEGAN + timedelta(minutes=now))


@pytest.mark.parametrize("timer", ["stop_after", "terminate_after"])
def test_a_pod_that_has_had_its_time_ends_the_run(timer: str) -> None:
    """H16: counted from the creation of the pod, -1 is never."""
    _check(f"{{{timer}: 600}}", created=5, now=14)
    with pytest.raises(TrainingFailed, match=timer) as ended:
        _check(f"{{{timer}: 600}}", created=5, now=16)
    assert ended.value.outcome == "deadline"
    _check(f"{{{timer}: -1}}", created=5, now=1000)


def test_a_pod_that_its_guard_ended_is_not_replaced() -> None:
    """Another one would be a way around the limit; one that was lost earlier is replaced."""
    with pytest.raises(TrainingFailed):
        _check("{stop_after: 600}", created=5, now=60, gone=15)
    _check("{stop_after: 600}", created=5, now=60, gone=10)


def test_a_run_that_was_resumed_is_not_held_to_the_pods_before() -> None:
    """It began anew."""
    _check("{stop_after: 600}", created=-100, now=1, gone=-80)
