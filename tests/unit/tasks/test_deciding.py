"""The decision after an attempt, as the parent makes it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from runner.attempts import AttemptFacts, CheckpointFact
from runner.errors import TrainingFailed
from tasks.deciding import decide
from tasks.run import Run, make_order

RUN = Run("3f0c6b1e", "x.yml", None, datetime(2026, 1, 1, tzinfo=UTC))


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AXR_HOME", str(tmp_path))


def _facts(outcome: str = "loss_spike", **facts: Any) -> AttemptFacts:
    known = {"first_step": 1, "last_step": 28, "onset_step": 24, "alarm_step": 28, **facts}
    return AttemptFacts(1, outcome, f"{outcome} at 28", **known)  # type: ignore[arg-type]


SAVED = (CheckpointFact(20, "healthy", "kept/checkpoint-20"),)


def test_the_batch_is_that_of_the_task_file() -> None:
    """Out of memory with 8 rows at once: 4, twice."""
    order = make_order("x.yml", "base_model: x\nmicro_batch_size: 8\n", "local")
    plan = decide(RUN, order, [_facts("out_of_memory", planned_steps=40)])
    assert plan.overrides["micro_batch_size"] == 4
    assert plan.overrides["gradient_accumulation_steps"] == 2


@pytest.mark.parametrize(
    ("saved", "more"),
    [
        (SAVED, "; the last healthy checkpoint is runs/3f0c6b1e/kept/checkpoint-20"),
        ((), "; there is no healthy checkpoint"),
    ],
)
def test_the_end_says_where_the_last_healthy_model_lies(
    saved: tuple[CheckpointFact, ...], more: str
) -> None:
    """The outcome is the trouble's own."""
    order = make_order("x.yml", "base_model: x\nrunner: {resume: {ladder: []}}\n", "local")
    with pytest.raises(TrainingFailed) as ended:
        decide(RUN, order, [_facts(checkpoints=saved)])
    assert ended.value.outcome == "loss_spike"
    assert str(ended.value) == f"loss_spike at 28; no rung of the ladder helped{more}"


def test_what_is_no_trouble_of_the_training_says_nothing_of_checkpoints() -> None:
    """A deadline or a config error is the whole message."""
    order = make_order("x.yml", "base_model: x\n", "local")
    with pytest.raises(TrainingFailed, match=r"^deadline at 28$"):
        decide(RUN, order, [_facts("deadline", checkpoints=SAVED)])
