import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from runner.errors import TrainingFailed
from runner.taskfile import parse_task_file
from tasks import budget, lease
from tasks.budget import (
    budget_deadline,
    budget_of,
    check_budget,
    left_of_budget,
    most_per_hour,
    most_words,
    tell_of_budget,
)
from tasks.run import Order, Run

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
RUN = Run("c0ffee00-1111", "x.yml", None, BEGAN)


def _order(settings: str = "{budget: 10}") -> Order:
    return Order(parse_task_file(f"base_model: x\nrunner: {settings}\n", "x.yml"), ("runpod",))


def _facts(**more: str) -> dict[str, str]:
    """A run whose pod has cost a dollar an hour since BEGAN."""
    bill = {"cloud": "runpod", "created": BEGAN.isoformat(), "terminated": None}
    return {"pod.a": json.dumps({**bill, "price_per_hour": 1.0}), **more}


def _after(hours: float) -> datetime:
    return BEGAN + timedelta(hours=hours)


def test_a_budget_ends_the_run_when_it_is_used_up_and_not_before() -> None:
    """With what was spent on what, and how to go on."""
    check_budget(RUN, _order(), _facts(), _after(9.999))
    with pytest.raises(TrainingFailed, match=r"budget: 10 is used up: \$10.00 spent") as ended:
        check_budget(RUN, _order(), _facts(), _after(10))
    assert ended.value.outcome == "budget"
    assert "the pod a on runpod $10.00" in str(ended.value)
    assert "axolotl-runner resume c0ffee00 --budget USD" in str(ended.value)


def test_without_a_budget_money_ends_nothing() -> None:
    """max_hours does."""
    check_budget(RUN, _order("{}"), _facts(), _after(1000))
    assert left_of_budget(_order("{}"), _facts()) is None


def test_a_raised_budget_replaces_the_task_files() -> None:
    """What was spent before it was raised still counts."""
    facts = _facts(budget="20")
    assert budget_of(_order(), facts) == 20
    check_budget(RUN, _order(), facts, _after(15))
    with pytest.raises(TrainingFailed):
        check_budget(RUN, _order(), facts, _after(20))


def test_a_step_that_saves_the_model_has_a_while_to_spare() -> None:
    """Ten minutes, not more."""
    check_budget(RUN, _order(), _facts(), _after(10.1), spare=600)
    with pytest.raises(TrainingFailed):
        check_budget(RUN, _order(), _facts(), _after(10.2), spare=600)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("{}", "costs $120.00 at most: max_hours: 24 × max_price_per_hour: 5 (no budget is set)"),
        ("{budget: 10}", "costs $10.00 at most, its budget"),
        ("{budget: 10, max_hours: 1}", "costs $5.00 at most: max_hours: 1 × max_price"),
    ],
)
def test_what_a_run_can_cost_is_said_before_anything_is_rented(settings: str, said: str) -> None:
    """Whichever limit is the lower one."""
    assert said in most_words(_order(settings))


@pytest.mark.parametrize(("left", "most"), [(None, 5.0), (2.0, 5.0), (0.05, 3.0), (-1.0, 0.0)])
def test_a_new_pod_must_be_payable_for_a_minute(left: float | None, most: float) -> None:
    """Within max_price_per_hour, whatever is left."""
    assert most_per_hour(_order(), left) == pytest.approx(most)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], dict[str, str]]:
    """The notices that were sent, and the run's labels."""
    notices: list[str] = []
    facts = _facts()

    def deliver(run: Run, to: Any, kind: str, reason: str, **_: Any) -> None:
        assert kind == "budget"
        notices.append(reason)

    monkeypatch.setattr(budget, "deliver", deliver)
    monkeypatch.setattr(budget, "remember", lambda run, found: facts.update(found))
    return notices, facts


def test_people_are_told_once_at_half_and_once_at_four_fifths(
    told: tuple[list[str], dict[str, str]],
) -> None:
    """The mark is a label: a parent that is started again does not tell twice."""
    notices, facts = told
    for minute in range(0, 600, 10):
        tell_of_budget(RUN, _order(), dict(facts), _after(minute / 60))
    assert [text.partition(" of")[0] for text in notices] == ["50 %", "80 %"]
    assert notices[0] == (
        "50 % of budget: 10 is used: $5.00 spent: the pod a on runpod $5.00; "
        "the rest lasts 5.0 hours"
    )


def test_a_parent_that_was_away_tells_the_higher_of_two(
    told: tuple[list[str], dict[str, str]],
) -> None:
    """And never the other one after it."""
    notices, facts = told
    tell_of_budget(RUN, _order(), dict(facts), _after(9))
    tell_of_budget(RUN, _order(), dict(facts), _after(9.5))
    assert [text[:4] for text in notices] == ["80 %"]


def test_a_raised_budget_is_told_of_anew(told: tuple[list[str], dict[str, str]]) -> None:
    """Half of it is another amount."""
    notices, facts = told
    tell_of_budget(RUN, _order(), dict(facts), _after(8))
    tell_of_budget(RUN, _order(), {**facts, "budget": "12"}, _after(8))
    assert [text.partition(" is")[0] for text in notices] == [
        "80 % of budget: 10",
        "50 % of budget: 12",
    ]


def test_the_sweep_ends_what_is_over_its_budget_after_the_parents_own_time() -> None:
    """Also a pod that is kept after its run; while the parent saves, it has said for how long."""
    settings = _order().settings
    found = budget_deadline(settings, _facts(), _after(3))
    assert found is not None
    assert (found.at, found.outcome) == (_after(10), "budget")
    saving = str(int(_after(10.3).timestamp()))
    later = budget_deadline(settings, _facts(ends_at=saving), _after(10.1))
    assert later is not None
    assert later.at == _after(10.3)
    assert budget_deadline(_order("{}").settings, _facts(), _after(3)) is None
    assert budget_deadline(settings, {}, _after(3)) is None


def _leased(
    monkeypatch: pytest.MonkeyPatch, order: Order, known: Mapping[str, str], **more: float
) -> dict[str, Any]:
    labels: dict[str, Any] = {}
    monkeypatch.setattr(lease, "remember", lambda run, found: labels.update(found))
    lease.renew(RUN, order, _after(1), known=known, **more)
    return labels


def test_a_lease_says_when_it_was_renewed_and_until_when_the_money_lasts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In Unix seconds, for the guard on the pod."""
    began = int(BEGAN.timestamp())
    ends = began + 36000
    leased = _leased(monkeypatch, _order(), _facts())
    assert (leased["lease"], leased["ends_at"]) == (began + 3600, ends)
    assert _leased(monkeypatch, _order(), _facts(), spare=600)["ends_at"] == ends + 600
    assert _leased(monkeypatch, _order("{}"), _facts())["ends_at"] == ""
    assert _leased(monkeypatch, _order(), {})["ends_at"] == ""


def test_a_pod_can_tell_what_was_spent_up_to_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the last renewal and the price per hour; unknown where the labels do not say."""
    leased = _leased(monkeypatch, _order(), _facts())
    labels = {f"axr.{name}": value for name, value in leased.items()}
    assert lease.spent_at(labels, leased["lease"]) == 1.0
    assert lease.spent_at(labels, leased["lease"] + 1800) == 1.5
    assert lease.spent_at({}, 0.0) is None
    assert lease.spent_at({**labels, "axr.spent": "?"}, 0.0) is None
