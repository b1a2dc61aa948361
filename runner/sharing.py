"""Who makes up an optimizer step: one process for each GPU, and the batch of each.

A step has the same rows on every pod of a run. Where a pod has another number of GPUs the
accumulation changes, and where that does not come out even the micro batch, to a smaller one. Then
the plan has as many steps, and the trainer, which derives the data position from its step number
and deals whole micro batches out to its processes in turn, sees in each step the rows of the same
step elsewhere (tests/e2e/test_gpu_counts.py). Only the random numbers (dropout) are others: each
process keeps its own.

Not covered: several processes fill up an epoch's last step with rows of its beginning, one does
not; with sample packing the rows of a bin follow from the micro batch, and an epoch may be a step
longer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runner.batch import Batch, batch_of
from runner.errors import ConfigError
from runner.values import plain_number

BATCH_KEYS = ("micro_batch_size", "gradient_accumulation_steps")
# With these several processes make up one row.
_SPLIT = ("tensor_parallel_size", "context_parallel_size")


@dataclass(frozen=True)
class Shares:
    """`processes` of the trainer, each with `batch`."""

    processes: int
    batch: Batch

    @property
    def rows(self) -> int:
        """Rows of one optimizer step."""
        return self.processes * self.batch.effective

    def __str__(self) -> str:
        micro, accumulation = self.batch.micro, self.batch.accumulation
        gpus = "1 GPU" if self.processes == 1 else f"{self.processes} GPUs"
        return f"{gpus} x micro_batch_size {micro} x gradient_accumulation_steps {accumulation}"

    def record(self) -> dict[str, int]:
        """As the ledger has it."""
        micro, accumulation = self.batch.micro, self.batch.accumulation
        return dict(
            zip(("world_size", *BATCH_KEYS), (self.processes, micro, accumulation), strict=True)
        )


def recorded(batch: Mapping[str, int] | None) -> Shares | None:
    """What a ledger entry says of the attempt that wrote it; None for one that says nothing."""
    try:
        found = [int((batch or {})[key]) for key in ("world_size", *BATCH_KEYS)]
    except (KeyError, TypeError, ValueError):
        return None
    return Shares(found[0], Batch(*found[1:])) if min(found) >= 1 else None


def gpus_to_use(there: int, asked: Sequence[int]) -> int:
    """How many of the GPUs that are there: the most of `runner.gpu_count` that they suffice for,
    else all of them. 0 for none.
    """
    return max((count for count in asked if count <= there), default=there)


def share_out(
    axolotl: Mapping[str, object],
    *,
    gpus: int,
    asked: Sequence[int],
    overrides: Mapping[str, int],
    before: Shares | None = None,
    checkpoint: str = "",
    written_in_parts: bool = False,
) -> Shares:
    """The processes on a pod that has `gpus` to use (none: one process), and the batch of each.

    `asked` is runner.gpu_count: the task file's batch is meant for the first of it. `before` is
    what `checkpoint`, from which is gone on, was written by, and `written_in_parts` whether each
    process wrote a part; `overrides` are those of the attempt.
    ConfigError, in one sentence, where the same step can't be made up or gone on with.
    """
    processes = max(1, gpus)
    wanted = batch_of({**axolotl, **overrides})
    planned = before or Shares(asked[0], batch_of(axolotl))
    rigid = why_rigid(axolotl) or ("sharded states" if written_in_parts else None)
    if rigid and processes != planned.processes and (before or rigid in _SPLIT):
        what = f"{checkpoint} was written by" if before else "the task file is meant for"
        raise ConfigError(
            f"{what} {_gpus(planned.processes)} with {rigid}, which can only go on with as many; "
            f"this pod has {_gpus(gpus)}: set runner.gpu_count: {planned.processes}"
        )
    if processes * wanted.effective == planned.rows:
        return Shares(processes, wanted)
    batch = fitting(planned.rows, wanted.micro, processes)
    if batch is None:
        counts = [str(n) for n in range(1, min(planned.rows, 64) + 1) if planned.rows % n == 0]
        raise ConfigError(
            f"{_gpus(processes)} can't share the {planned.rows} rows of a step ({planned}"
            f"{f', by {checkpoint}' if before else ''}): set runner.gpu_count to a number that "
            f"divides {planned.rows}, such as {' or '.join(counts[:4])}"
        )
    return Shares(processes, batch)


def fitting(rows: int, micro: int, processes: int) -> Batch | None:
    """The largest micro batch, `micro` at most, with which they make up `rows`; None if none."""
    share, rest = divmod(rows, processes)
    if rest or not share:
        return None
    micro = next(size for size in range(min(micro, share), 0, -1) if share % size == 0)
    return Batch(micro, share // micro)


def batch_overrides(
    axolotl: Mapping[str, object],
    overrides: Mapping[str, int],
    shares: Shares,
    planned_steps: int | None,
) -> dict[str, int]:
    """The attempt's overrides with the batch of `shares`; with another batch than the attempt
    would have, the length of the plan is pinned to the checkpoint's.
    """
    if batch_of({**axolotl, **overrides}) == shares.batch:
        return dict(overrides)
    pinned = {"max_steps": planned_steps} if planned_steps and not axolotl.get("max_steps") else {}
    batch = zip(BATCH_KEYS, (shares.batch.micro, shares.batch.accumulation), strict=True)
    return {**pinned, **overrides, **dict(batch)}


def why_rigid(axolotl: Mapping[str, object]) -> str | None:
    """What in a task file binds its checkpoints to the number of GPUs that wrote them."""
    if axolotl.get("deepspeed"):
        return "DeepSpeed"
    if axolotl.get("fsdp") or axolotl.get("fsdp_config"):
        return "FSDP"
    return next((key for key in _SPLIT if (plain_number(axolotl.get(key)) or 0) > 1), None)


def _gpus(count: int) -> str:
    return {0: "no GPU", 1: "1 GPU"}.get(count, f"{count} GPUs")
