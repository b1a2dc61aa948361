"""What several ranks must agree on; with a single process all of it is free.

Each function is a collective: every rank calls it, or all of them wait for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from accelerate.utils import broadcast_object_list, gather_object
from transformers import Trainer

T = TypeVar("T")


def any_rank(trainer: Trainer, flag: bool) -> bool:
    """Return True on every rank when `flag` is true on one; also a barrier."""
    if trainer.args.world_size <= 1:
        return flag
    shared = torch.tensor([int(flag)], device=trainer.args.device)
    torch.distributed.all_reduce(shared, op=torch.distributed.ReduceOp.MAX)
    return bool(shared.item())


def from_first(trainer: Trainer, value: T) -> T:
    """Return rank 0's value on every rank."""
    if trainer.args.world_size <= 1:
        return value
    shared: list[Any] = [value]
    broadcast_object_list(shared, from_process=0)
    result: T = shared[0]
    return result


def from_all(trainer: Trainer, values: Sequence[T]) -> list[T]:
    """Return the values of all ranks, rank 0's first."""
    if trainer.args.world_size <= 1:
        return list(values)
    return list(gather_object(list(values)))
