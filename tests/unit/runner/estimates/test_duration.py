from __future__ import annotations

import pytest

from runner.batch import Batch
from runner.estimates.duration import DOWNLOAD, START_HOURS, Steps, hours, operations, steps_of
from runner.estimates.gpus import gpu_named
from runner.estimates.rows import Rows
from runner.estimates.training import Training, training_of
from tests.unit.runner.estimates.published import MISTRAL, MIXTRAL

ROWS = Rows(1000, 100_000.0)  # 100 tokens each


def _steps(rows: Rows = ROWS, gpus: int = 1, **keys: object) -> Steps:
    usual = {"micro_batch_size": 2, "gradient_accumulation_steps": 4, "sequence_len": 512}
    axolotl = {**usual, **keys}
    return steps_of(axolotl, training_of(axolotl, gpus=gpus), rows)


@pytest.mark.parametrize(
    ("keys", "steps"),
    [
        ({}, 125),
        ({"num_epochs": 3}, 375),
        ({"val_set_size": 0.05}, 119),  # 950 rows, 8 a step
        ({"val_set_size": 200}, 100),
        ({"max_steps": 40}, 40),
        ({"max_steps": 500}, 125),
        ({"max_steps": -1}, 125),
        ({"gpus": 4}, 32),
        # 1000 x 100 tokens in bins of 512 that are 95 % full: 206 rows
        ({"sample_packing": True}, 26),
    ],
)
def test_steps_follow_from_rows_batch_epochs_and_packing(
    keys: dict[str, object], steps: int
) -> None:
    """A started step counts as one, as in transformers."""
    gpus = int(str(keys.pop("gpus", 1)))
    assert _steps(gpus=gpus, **keys).count == steps


def test_tokens_are_those_of_the_rows_or_of_full_rows_where_they_are_padded() -> None:
    """125 steps of 8 rows."""
    assert _steps().tokens == 125 * 8 * 100
    assert _steps(pad_to_sequence_len=True).tokens == 125 * 8 * 512
    assert _steps(Rows(1000, 10_000_000.0)).tokens == 125 * 8 * 512


def test_unknown_rows_are_unknown_steps_but_for_max_steps() -> None:
    """Then each row is taken for a full one, and that is said."""
    unknown = Rows(None, None, ("the rows of a/b are unknown",))
    assert (_steps(unknown).count, _steps(unknown).tokens) == (None, None)
    bounded = _steps(unknown, max_steps=10)
    assert (bounded.count, bounded.tokens, bounded.at_most) == (10, 10 * 8 * 512, True)


def test_full_training_takes_six_operations_a_weight_and_two_more_to_recompute() -> None:
    """Mistral: 7.11e9 weights take part (the token table is looked up), 32 layers of attention."""
    short = Training(sequence=1)
    weights = MISTRAL.parameters - 32000 * 4096
    attention = 2 * 32 * 4096
    assert MISTRAL.active == weights
    assert operations(MISTRAL, short) == 6 * weights + 3 * attention
    recomputed = Training(sequence=1, checkpointing="yes")
    assert operations(MISTRAL, recomputed) == 8 * weights + 4 * attention
    lora = Training(method="lora", sequence=1)
    assert operations(MISTRAL, lora) == 4 * weights + 3 * attention


@pytest.mark.parametrize(
    ("training", "tokens_per_second"),
    [
        (Training(checkpointing="yes", sequence=4096), 2775),
        (Training(checkpointing="yes", sequence=4096, method="lora"), 3598),
        (Training(checkpointing="yes", sequence=4096, method="qlora"), 3429),
    ],
    ids=["full", "lora", "qlora"],
)
def test_the_range_holds_what_was_measured_on_an_a100(
    training: Training, tokens_per_second: float
) -> None:
    """fms-acceleration, scripts/benchmarks/refs/a100_80gb.csv, rows 0, 12 and 36."""
    a100 = gpu_named("NVIDIA A100 80GB PCIe")
    assert a100 is not None
    tokens = 100e6
    best, worst = hours(MISTRAL, training, tokens, a100, 1)
    download = MISTRAL.parameters * 2
    measured = tokens / tokens_per_second / 3600
    # Attention's share makes it a little faster than half of the rate.
    assert (best - START_HOURS[0] - download / DOWNLOAD[0] / 3600) * 0.9 < measured < worst


def test_several_gpus_share_the_work_and_lose_some_time() -> None:
    """At best half the time on two, at worst 70 % of that speed."""
    gpu = gpu_named("A40")
    assert gpu is not None
    plan = Training(batch=Batch(1), sequence=512)
    one, two = (hours(MISTRAL, plan, 1e9, gpu, count) for count in (1, 2))
    start = hours(MISTRAL, plan, 0, gpu, 1)
    assert two[0] - start[0] == pytest.approx((one[0] - start[0]) / 2)
    assert two[1] - start[1] == pytest.approx((one[1] - start[1]) / 2 / 0.7)


def test_a_mixture_of_experts_takes_the_time_of_those_that_are_used() -> None:
    """13 of 47 billion weights."""
    plan = Training(sequence=1)
    assert operations(MIXTRAL, plan) == pytest.approx(6 * 12.75e9, rel=0.01)
