"""What the recovery bench makes of its trainings' results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.recovery import items, metrics, score, table
from benchmarks.recovery_runs import (
    FIRST_FAULT,
    LAST_FAULT,
    Item,
    item_named,
    named,
    steps_lost,
    task_text,
)
from pod import events
from pod.rundir import RunDir, write_json
from runner.attempts import AttemptFacts


def result(**changes: Any) -> dict[str, Any]:
    """A training that came through."""
    return {
        "outcome": "completed",
        "last_step": 40,
        "planned_steps": 40,
        "attempts": 2,
        "steps_lost": 8,
        "eval_loss": 1.0,
        "seconds": 30.0,
        **changes,
    }


def clean(**changes: Any) -> dict[str, Any]:
    """A training without a fault."""
    return result(attempts=1, steps_lost=0, alarms=[], **changes)


def facts(n: int, **changes: Any) -> AttemptFacts:
    """One attempt."""
    return AttemptFacts(n=n, outcome="loss_spike", reason="", **changes)


@pytest.mark.parametrize(
    ("changes", "recovered"),
    [
        ({}, True),
        ({"eval_loss": 1.09}, True),
        ({"eval_loss": 1.11}, False),
        ({"eval_loss": "nan"}, False),
        ({"eval_loss": None}, False),
        ({"outcome": "loss_spike"}, False),
        ({"last_step": 39}, False),
        ({"attempts": 4}, True),
        ({"attempts": 5}, False),
        ({"struck": False}, False),
    ],
)
def test_recovered_means_a_healthy_model_at_the_planned_step(
    changes: dict[str, Any], recovered: bool
) -> None:
    """Any shortfall counts as lost, and so does a fault that never struck."""
    results = {"ours-none-1": clean(), "ours-nan-1": result(**changes)}
    (scored,) = [each for each in score(results) if each.item.fault == "nan"]
    assert scored.recovered is recovered
    assert scored.steps_lost == (8 if recovered else results["ours-nan-1"]["last_step"])


def test_a_training_without_its_clean_twin_is_left_out() -> None:
    """A sweep cut short compares nothing with nothing."""
    assert score({"ours-nan-3": result(), "ours-none-1": clean()})[0].item.seed == 1


def test_metrics_rest_on_what_is_there() -> None:
    """Shares in per cent, medians, and n; a median that is not finite has no value."""
    results = {
        "ours-none-1": clean(),
        "ours-none-2": clean() | {"alarms": [["loss_spike", 9, 13]]},
        "ours-nan-1": result(),
        "ours-garbage-1": result(attempts=3, eval_loss=1.04, garbage_named=True),
        "plain-nan-1": result(attempts=1, eval_loss="nan"),
    }
    found = metrics(score(results))
    assert found["recovered"] == {"value": 100.0, "unit": "%", "target": 95.0, "n": 2}
    assert found["loss_ratio"] == {"value": 1.02, "unit": "×", "target": 1.05, "n": 2}
    assert found["clean_rollbacks"] == {"value": 1, "unit": "runs", "target": 0, "n": 2}
    assert found["garbage_named"]["value"] == 100.0
    assert (found["plain_recovered"]["value"], found["plain_loss_ratio"]["value"]) == (0.0, None)
    assert found["weights_recovered"] == {"value": None, "unit": "%", "target": 95.0, "n": 0}
    json.dumps(found, allow_nan=False)


def test_the_table_has_a_line_for_each_fault_with_and_without_us() -> None:
    """A group without results has none."""
    results = {"ours-none-1": clean(), "ours-nan-1": result(), "plain-nan-1": result()}
    lines = table(score(results))
    assert [line.split()[:3] for line in lines[1:]] == [
        ["none", "ours", "1/1"],
        ["nan", "ours", "1/1"],
        ["nan", "plain", "1/1"],
    ]


def test_the_sweep_has_each_fault_with_five_seeds_and_twenty_clean_runs() -> None:
    """Names are unique and lead back to their items."""
    every = items()
    assert [item_named(item.name) for item in every] == every
    assert len({item.name for item in every}) == len(every) == 20 + 2 * 4 * 5
    assert all(FIRST_FAULT <= item.fault_step <= LAST_FAULT for item in every)


def test_a_faulty_item_differs_from_its_clean_twin_by_the_fault_alone() -> None:
    """Same seed, same keys; the fault's plugin and step come on top."""
    faulty = yaml.safe_load(task_text(Item("ours", "nan", 3)))
    twin = yaml.safe_load(task_text(Item("ours", "none", 3)))
    assert faulty.pop("fault_step") == Item("ours", "nan", 3).fault_step
    assert faulty.pop("plugins") == ["tests.faults.nan_once.NanOnce", *twin.pop("plugins")]
    assert faulty == twin


def test_steps_lost_are_those_after_the_checkpoint_that_one_goes_back_to() -> None:
    """From nothing (no checkpoint) all are lost; the last attempt loses none."""
    attempts = [
        facts(1, last_step=28),
        facts(2, last_step=27, from_checkpoint=20),
        facts(3, last_step=40),
    ]
    assert steps_lost(attempts) == 8 + 27


def test_a_post_mortem_is_checked_against_the_planted_rows(tmp_path: Path) -> None:
    """One planted row is enough to be named; to be first, each must begin with one."""
    run_dir = RunDir(tmp_path)
    assert named(run_dir) == {}
    write_json(tmp_path / "planted.json", {"steps": [24, 25], "rows": [7, 9], "met": [24]})
    assert named(run_dir)["garbage_named"] is False
    rows = [{"index": 3, "loss": 9.0}, {"index": 9, "loss": 8.0}]
    events.append(run_dir.events, "postmortem", 2, 28, rows=rows)
    assert named(run_dir) == {"met": [24], "garbage_named": True, "garbage_first": False}
