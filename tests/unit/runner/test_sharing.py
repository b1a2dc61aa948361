"""The same step from another number of GPUs."""

from typing import Any

import pytest

from runner.batch import Batch
from runner.errors import ConfigError
from runner.sharing import (
    Shares,
    batch_overrides,
    fitting,
    gpus_to_use,
    recorded,
    share_out,
    why_rigid,
)

TASK = {"micro_batch_size": 4, "gradient_accumulation_steps": 2}


def _shared(
    gpus: int, before: Shares | None = None, asked: tuple[int, ...] = (2,), **keys: Any
) -> Shares:
    return share_out(
        {**TASK, **keys}, gpus=gpus, asked=asked, overrides={}, before=before, checkpoint="c-40"
    )


@pytest.mark.parametrize(
    ("rows", "micro", "processes", "batch"),
    [
        (16, 4, 2, Batch(4, 2)),
        (16, 4, 1, Batch(4, 4)),
        (16, 4, 4, Batch(4, 1)),
        (16, 4, 8, Batch(2, 1)),
        (16, 4, 16, Batch(1, 1)),
        (12, 4, 2, Batch(3, 2)),
        (6, 4, 1, Batch(3, 2)),
        (14, 4, 2, Batch(1, 7)),
        (16, 4, 3, None),
        (2, 4, 4, None),
    ],
)
def test_processes_make_up_the_rows_of_a_step(
    rows: int, micro: int, processes: int, batch: Batch | None
) -> None:
    """First by the accumulation, then by a smaller micro batch, never by a larger one."""
    assert fitting(rows, micro, processes) == batch
    if batch is not None:
        assert Shares(processes, batch).rows == rows
        assert batch.micro <= micro


@pytest.mark.parametrize(
    ("gpus", "batch"), [(2, Batch(4, 2)), (1, Batch(4, 4)), (0, Batch(4, 4)), (4, Batch(4, 1))]
)
def test_the_task_files_batch_is_meant_for_its_first_count(gpus: int, batch: Batch) -> None:
    """H39: a pod with other GPUs makes up the same 16 rows; without any there is one process."""
    assert _shared(gpus, asked=(2, 1, 4)) == Shares(max(1, gpus), batch)


@pytest.mark.parametrize("gpus", [1, 2, 4])
def test_what_was_trained_so_far_outweighs_an_edited_task_file(gpus: int) -> None:
    """H39: the user resumes with another gpu_count, and perhaps another batch."""
    before = Shares(4, Batch(2, 1))
    for asked in ((1,), (2,), (4,)):
        assert _shared(gpus, before, asked).rows == 8


def test_a_smaller_batch_stays_in_force() -> None:
    """The micro batch is the attempt's, the rows are the checkpoint's."""
    overrides = {"micro_batch_size": 2, "gradient_accumulation_steps": 4}
    before = Shares(2, Batch(2, 4))
    found = share_out(TASK, gpus=1, asked=[2], overrides=overrides, before=before)
    assert found == Shares(1, Batch(2, 8))


def test_rows_that_do_not_divide_are_refused_with_what_to_do() -> None:
    """Before any training, with the counts that would do."""
    with pytest.raises(
        ConfigError,
        match=r"3 GPUs can't share the 16 rows of a step \(2 GPUs x micro_batch_size 4 x "
        r"gradient_accumulation_steps 2, by c-40\): set runner.gpu_count to a number that "
        r"divides 16, such as 1 or 2 or 4 or 8",
    ):
        _shared(3, Shares(2, Batch(4, 2)))


@pytest.mark.parametrize(
    ("keys", "what"),
    [
        ({"deepspeed": "zero2.json"}, "DeepSpeed"),
        ({"fsdp": ["full_shard"]}, "FSDP"),
        ({"fsdp_config": {"fsdp_version": 2}}, "FSDP"),
        ({"tensor_parallel_size": 2}, "tensor_parallel_size"),
    ],
)
def test_sharded_checkpoints_go_on_with_as_many_gpus_only(keys: dict[str, Any], what: str) -> None:
    """H39: never silently at another world size."""
    assert why_rigid(keys) == what
    before = Shares(4, Batch(2, 1))
    assert _shared(4, before, (4,), **keys).rows == 8
    with pytest.raises(
        ConfigError, match=f"c-40 was written by 4 GPUs with {what}.*1 GPU: set runner.gpu_count: 4"
    ):
        _shared(1, before, **keys)


def test_a_checkpoint_of_many_parts_tells_by_itself() -> None:
    """The task file may have been edited since."""
    with pytest.raises(ConfigError, match="sharded states"):
        share_out(
            TASK, gpus=1, asked=[1], overrides={}, before=Shares(2, Batch(4, 1)),
            written_in_parts=True,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("there", "asked", "used"),
    [(0, (1,), 0), (1, (1,), 1), (8, (1,), 1), (2, (4, 2), 2), (8, (4, 2), 4), (3, (4,), 3)],
)
def test_no_more_gpus_are_used_than_asked_for(
    there: int, asked: tuple[int, ...], used: int
) -> None:
    """A machine of one's own may have more; a pod may show fewer."""
    assert gpus_to_use(there, asked) == used


def test_the_plan_keeps_its_length_with_another_batch() -> None:
    """Unless the task file itself says how long it is; nothing is said where nothing changes."""
    two = Shares(1, Batch(4, 4))
    batch = {"micro_batch_size": 4, "gradient_accumulation_steps": 4}
    assert batch_overrides(TASK, {}, two, 50) == {**batch, "max_steps": 50}
    assert batch_overrides({**TASK, "max_steps": 60}, {}, two, 50) == batch
    assert batch_overrides(TASK, {"max_steps": 49}, two, 50) == {**batch, "max_steps": 49}
    assert batch_overrides(TASK, {}, Shares(2, Batch(4, 2)), 50) == {}


def test_a_record_is_read_back_or_says_nothing() -> None:
    """A store may hold anything."""
    shares = Shares(2, Batch(4, 2))
    assert recorded(shares.record()) == shares
    for odd in (
        None,
        {},
        {**shares.record(), "world_size": 0},
        {**shares.record(), "world_size": "x"},
    ):
        assert recorded(odd) is None  # type: ignore[arg-type]
