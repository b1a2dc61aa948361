"""A run that uses up its money in the middle of a training."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from tests.e2e.conftest import Side, longer

pytestmark = pytest.mark.e2e


def test_a_budget_that_is_used_up_ends_the_run_after_a_checkpoint(
    side: Side, tmp_path: Path
) -> None:
    """At 100 % the trainer saves, the pod is given back, and the user can go on with more money.

    The money is spent by a pod that the run is said to have had before: this machine is free.
    """
    file = Path(longer(tmp_path))
    settings = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump(settings | {"runner": {"cloud": "local", "budget": 5.0}}))
    run = side.start(str(file))
    side.wait_for_step(run, 20)
    now = datetime.now(UTC)
    bill = {
        "cloud": "vast",
        "created": (now - timedelta(hours=3)).isoformat(),
        "terminated": (now - timedelta(hours=1)).isoformat(),
        "price_per_hour": 3.0,
    }
    side.label(run, **{"pod.dear": json.dumps(bill)})

    report = side.report(run, within=240)
    assert report["outcome"] == "budget", report["reason"]
    assert "budget: 5 is used up: $6.00 spent" in report["reason"]
    assert "the pod dear on vast $6.00" in report["reason"]
    assert report["cost_usd"] == pytest.approx(6.0)
    (attempt,) = report["attempts"]
    assert attempt["outcome"] == "budget"
    last = side.steps(run)[-1][0]
    assert last < 200, "it was ended in the middle"
    assert (side.home.runs / run / "out" / f"checkpoint-{last}" / "trainer_state.json").exists()
    assert side.cli("pods", "--json").stdout.strip() == "[]"
    assert side.state(run) == "Budget"

    refused = side.cli("resume", run)
    assert refused.returncode != 0
    assert "has nothing left of budget: 5" in refused.stderr + refused.stdout
    done = side.cli("resume", run, "--budget", "20")
    assert done.returncode == 0, done.stderr
    side.wait("the end", lambda: side.state(run) == "Completed")
    assert [step for step, _ in side.steps(run)] == list(range(1, 201))
