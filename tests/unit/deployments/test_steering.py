import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from deployments import steering
from runner.errors import RunnerError
from runner.taskfile import parse_task_file
from tasks.run import Order

RUN = "c0ffee00-0000-4000-8000-000000000001"


@pytest.fixture
def ended_run(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A run that has spent 10 $ of `budget: 10` and ended; its facts, as they become."""
    bill = {
        "cloud": "vast",
        "created": (datetime.now(UTC) - timedelta(hours=9)).isoformat(),
        "terminated": (datetime.now(UTC) - timedelta(hours=4)).isoformat(),
        "price_per_hour": 2.0,
    }
    facts: dict[str, Any] = {"outcome": "budget", "pod.a": json.dumps(bill)}
    task = parse_task_file("base_model: x\nrunner: {budget: 10}\n", "x.yml")
    monkeypatch.setattr(steering, "find_run", lambda wanted: RUN)
    monkeypatch.setattr(steering, "recall", lambda run: dict(facts))
    monkeypatch.setattr(steering, "remember", lambda run, found: facts.update(found))
    monkeypatch.setattr(steering, "attempts", lambda run: [])
    monkeypatch.setattr(steering, "open_order", lambda run: Order(task, ("vast",)))
    monkeypatch.setattr(steering, "write", lambda call: None)
    return facts


def test_a_run_without_money_is_not_set_going(ended_run: dict[str, Any]) -> None:
    """What it spent before counts: it could only end again. One message says what to do."""
    with pytest.raises(RunnerError, match="has nothing left of budget: 10") as refused:
        steering.resume_run("c0ffee", watch=False)
    assert "$10.00 spent: the pod a on vast" in str(refused.value)
    assert "axolotl-runner resume c0ffee00 --budget 20" in str(refused.value)
    assert ended_run["outcome"] == "budget"


def test_a_raised_budget_sets_it_going_and_stays(ended_run: dict[str, Any]) -> None:
    """Also for the parents and attempts that follow."""
    assert steering.resume_run("c0ffee", watch=False, budget=15.0) == 0
    assert ended_run["outcome"] == ""
    assert ended_run["budget"] == "15"
    ended_run["outcome"] = "crash"
    assert steering.resume_run("c0ffee", watch=False) == 0
    assert ended_run["budget"] == "15"


def test_a_raise_that_is_none_is_refused(ended_run: dict[str, Any]) -> None:
    """Less than was spent already."""
    with pytest.raises(RunnerError, match="has nothing left of budget: 8"):
        steering.resume_run("c0ffee", watch=False, budget=8.0)
