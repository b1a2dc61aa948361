"""The arithmetic of a smaller batch after it did not fit into memory."""

import pytest

from runner.batch import Batch, batch_of


@pytest.mark.parametrize(
    ("batch", "smaller"),
    [
        (Batch(8, 1), Batch(4, 2)),
        (Batch(4, 2), Batch(2, 4)),
        (Batch(2, 4), Batch(1, 8)),
        (Batch(1, 8), None),
        (Batch(1, 1), None),
        (Batch(5, 1), Batch(1, 5)),
        (Batch(5, 4), Batch(2, 10)),
        (Batch(6, 1), Batch(3, 2)),
        (Batch(7, 3), Batch(3, 7)),
        (Batch(3, 2), Batch(1, 6)),
        (Batch(10, 1), Batch(5, 2)),
        (Batch(9, 1), Batch(3, 3)),
    ],
)
def test_the_micro_batch_is_halved_and_the_effective_batch_stays(
    batch: Batch, smaller: Batch | None
) -> None:
    """Rounded down, 1 at least, and only what divides the effective batch."""
    assert batch.smaller() == smaller
    if smaller is not None:
        assert smaller.effective == batch.effective
        assert smaller.micro <= batch.micro / 2


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (Batch(8, 1), ""),
        (Batch(1, 4), ""),
        (Batch(7, 1), " (a micro batch of 3 can't make up the effective batch of 7)"),
    ],
)
def test_it_is_said_when_the_half_can_not_be_taken(batch: Batch, said: str) -> None:
    """7 rows become 1, which is slower than a reader would expect."""
    assert batch.inexact == said


@pytest.mark.parametrize(
    ("keys", "batch"),
    [
        ({}, Batch(1, 1)),
        ({"micro_batch_size": 8}, Batch(8, 1)),
        ({"micro_batch_size": "8", "gradient_accumulation_steps": 4}, Batch(8, 4)),
        ({"micro_batch_size": 4, "batch_size": 16}, Batch(4, 4)),
        ({"micro_batch_size": 8, "batch_size": 4}, Batch(8, 1)),
        ({"micro_batch_size": None, "gradient_accumulation_steps": None}, Batch(1, 1)),
    ],
)
def test_the_batch_is_what_axolotl_makes_of_the_keys(keys: dict[str, object], batch: Batch) -> None:
    """With its defaults, and with the older batch_size."""
    assert batch_of(keys) == batch
