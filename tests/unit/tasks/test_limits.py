import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from runner.errors import TrainingFailed
from runner.taskfile import parse_task_file
from tasks import limits
from tasks.lease import RENEW_EVERY
from tasks.limits import Limits
from tasks.run import Order, Run

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
RUN = Run("run", "x.yml", None, BEGAN)


class World:
    """A clock, the labels of a run whose pod costs `price` an hour, and what was done when."""

    def __init__(self, price: float = 3600.0) -> None:
        self.seconds = 0.0
        self.cancelled = 0.0
        self.looked: list[float] = []
        self.renewed: list[float] = []
        self.days: list[float] = []
        bill = {"cloud": "runpod", "created": BEGAN.isoformat(), "terminated": None}
        self.facts = {"pod.a": json.dumps({**bill, "price_per_hour": price})}

    def recall(self, run: str) -> dict[str, str]:
        """The labels."""
        self.looked.append(self.seconds)
        return self.facts

    def limits(self, settings: str, **more: Any) -> Limits:
        """The limits under test, by this clock."""
        task = parse_task_file(f"base_model: x\nrunner: {settings}\n", "x.yml")
        return Limits(
            RUN,
            Order(task, ("runpod",)),
            clock=lambda: self.seconds,
            now=lambda: BEGAN + timedelta(seconds=self.seconds),
            **more,
        )


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Everything that the limits ask and do, in memory."""
    found = World()
    monkeypatch.setattr(limits, "recall", found.recall)
    monkeypatch.setattr(limits, "cancelled_for", lambda run: found.cancelled)
    monkeypatch.setattr(limits, "tell_of_budget", lambda *args: None)
    monkeypatch.setattr(limits, "check_day", lambda run, now: found.days.append(found.seconds))
    monkeypatch.setattr(
        limits, "renew", lambda run, order, now, **_: found.renewed.append(found.seconds)
    )
    return found


def _wait(world: World, watched: Limits, *, turn: float, until: float) -> str:
    """Turn by turn; the outcome with which the wait ended, empty when it went to its end."""
    while world.seconds < until:
        try:
            watched()
        except TrainingFailed as ended:
            return ended.outcome
        world.seconds += turn
    return ""


def test_a_look_is_taken_every_ten_seconds_and_the_lease_renewed_every_minute(
    world: World,
) -> None:
    """Whatever the pace of the wait."""
    assert _wait(world, world.limits("{}"), turn=1, until=180) == ""
    assert world.looked == list(range(0, 180, 10))
    assert world.renewed == [0, RENEW_EVERY, 2 * RENEW_EVERY]
    assert world.days == world.renewed


@pytest.mark.parametrize("budget", [7, 33.3, 100.4])
def test_a_budget_is_overspent_by_less_than_a_poll(world: World, budget: float) -> None:
    """At a dollar a second: the last look is taken when the money ends, not ten seconds later."""
    watched = world.limits(f"{{budget: {budget}}}")
    assert _wait(world, watched, turn=0.25, until=300) == "budget"
    assert budget <= world.seconds <= budget + 1.0


def test_the_deadline_counts_from_the_beginning_of_the_run(world: World) -> None:
    """Over all of its pods, and with the time in which it waited for one."""
    assert _wait(world, world.limits("{max_hours: 0.01}"), turn=1, until=300) == "deadline"
    assert 36 <= world.seconds <= 46


def test_a_parent_that_was_dead_for_an_hour_looks_first(world: World) -> None:
    """Its first look finds what has passed meanwhile."""
    world.seconds = 3600.0
    with pytest.raises(TrainingFailed) as ended:
        world.limits("{budget: 60}").look()
    assert ended.value.outcome == "budget"
    assert world.renewed == []


def test_a_clock_that_is_set_forward_ends_the_run_and_one_set_back_does_not_spare_it(
    world: World,
) -> None:
    """Time and money follow the wall clock, the pace of the looks does not."""
    task = parse_task_file("base_model: x\nrunner: {budget: 60}\n", "x.yml")
    wall = [BEGAN + timedelta(seconds=30)]
    watched = Limits(
        RUN, Order(task, ("runpod",)), clock=lambda: world.seconds, now=lambda: wall[0]
    )
    watched()
    wall[0] = BEGAN - timedelta(hours=1)
    world.seconds += 10
    watched()
    wall[0] = BEGAN + timedelta(seconds=61)
    world.seconds += 10
    with pytest.raises(TrainingFailed):
        watched()


def test_a_machine_without_a_price_uses_no_budget(world: World) -> None:
    """`cloud: local`: an hour of it costs nothing."""
    bill = json.loads(world.facts["pod.a"])
    world.facts["pod.a"] = json.dumps({**bill, "price_per_hour": 0.0})
    assert _wait(world, world.limits("{budget: 0.01}"), turn=60, until=36000) == ""


def test_a_cancel_that_nobody_delivered_is_noticed_in_every_wait(world: World) -> None:
    """Also while the run waits for its turn, or its pod boots."""
    watched = world.limits("{}")
    watched()
    world.cancelled = 30.0
    world.seconds += 10
    with pytest.raises(TrainingFailed) as ended:
        watched()
    assert ended.value.outcome == "cancelled"
