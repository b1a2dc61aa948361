"""Which rows of the data set were trained around an alarm, and how bad each looks to the model.

With healthy weights a garbage row has a loss far above its neighbours'. So the rows are scored
when the next attempt has loaded its checkpoint; ruined weights can't tell.

Rows go by their index: of equal rows each has its own. No state that the training depends on is
changed: the generators of random numbers are put back, the sampler is set anew by each epoch.

Not covered: data that is streamed, generated (GRPO) or grouped by length has no rows that could be
told afterwards; with FSDP, DeepSpeed and preference data rows are named without a loss.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any

import numpy as np
import torch
from accelerate.data_loader import SeedableRandomSampler
from torch.utils.data import SequentialSampler
from transformers import Trainer

from pod import ranks
from pod.eval_rows import badness, decoded
from pod.window import Row, Window

BUDGET_S = 4.0  # what a resumed training may lose by it
MOST_SCORED = 512
MOST_NAMED = 32
TEXT_LENGTH = 300
# Packing lays out a whole epoch before its first batch is known: about 10 s for a million rows.
MOST_PACKED = 300_000


def examine(
    trainer: Trainer, window: Window, *, clock: Callable[[], float] = time.monotonic
) -> list[Row]:
    """Return at most MOST_NAMED rows of the window, the worst first.

    Every rank looks at its own rows, and all get the result. What goes wrong on one costs its rows
    and a line in the log, never the training.
    """
    try:
        with _generators_put_back():
            rows = _own_rows(trainer, window, clock() + BUDGET_S, clock)
    except Exception as error:  # the border: a courtesy must not end a training
        _say(error)
        rows = []
    every = ranks.from_all(trainer, rows)
    return sorted(every, key=lambda row: badness(row.loss), reverse=True)[:MOST_NAMED]


def rows_of_steps(trainer: Trainer, first: int, last: int) -> list[tuple[int, int]]:
    """Return (step, index into the training data) of all that this rank trained in steps
    first..last; empty when it can't be told.
    """
    loader = trainer.callback_handler.train_dataloader
    if not _is_repeatable(loader) or _is_long_to_pack(trainer):
        return []
    accumulation = trainer.args.gradient_accumulation_steps
    per_epoch = max(1, math.ceil(len(loader) / accumulation))
    found: list[tuple[int, int]] = []
    for epoch in range((first - 1) // per_epoch, (last - 1) // per_epoch + 1):
        loader.set_epoch(epoch)
        before = epoch * per_epoch
        start = max(0, first - 1 - before) * accumulation
        end = min((last - before) * accumulation, len(loader))
        for n, batch in enumerate(islice(loader.batch_sampler, start, end), start):
            found += [(before + n // accumulation + 1, index) for index in _flat(batch)]
    return found


def row_sampler(loader: Any) -> Any:
    """What gives the rows of a loader their order, None when that can't be told."""
    sampler: Any = getattr(loader, "batch_sampler", None)
    while hasattr(sampler, "batch_sampler"):  # one rank's share of the batches
        sampler = sampler.batch_sampler
    return getattr(sampler, "sampler", None)


def weights_are_finite(model: torch.nn.Module) -> bool:
    """Whether all weights that are trained are numbers."""
    return all(bool(torch.isfinite(w).all()) for w in model.parameters() if w.requires_grad)


def _own_rows(
    trainer: Trainer, window: Window, deadline: float, clock: Callable[[], float]
) -> list[Row]:
    """Score one row at a time, which takes no more memory than a step of the training.

    What there is no time for has no loss, and too much of it is not even named.
    """
    places = rows_of_steps(trainer, window.first, window.last)
    places = places[:: math.ceil(len(places) / MOST_SCORED) or 1]
    scores = _can_score(trainer)
    rows: list[Row] = []
    with _evaluating(trainer.model):
        for step, index in places:
            late = clock() >= deadline
            if late and len(rows) >= MOST_NAMED:
                break
            row, loss = trainer.train_dataset[index], None
            if scores and not late:
                try:
                    loss = _loss(trainer, row)
                except Exception as error:  # out of memory, a model without labels
                    _say(error)
                    scores = False
            rows.append(Row(step, index, loss, _text(trainer, row), _tokens(row)))
    return rows


def _can_score(trainer: Trainer) -> bool:
    """With FSDP or DeepSpeed a forward needs all ranks at once; ruined weights can't tell."""
    sharded = trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled
    return not sharded and weights_are_finite(trainer.model)


def _loss(trainer: Trainer, row: Mapping[str, Any]) -> float | None:
    ids, labels = row.get("input_ids"), row.get("labels")
    if not ids or not labels or all(label == -100 for label in labels[1:]):
        return None
    given = {"input_ids": ids, "labels": labels, "attention_mask": [1] * len(ids)}
    batch = {
        name: torch.tensor([values], device=trainer.args.device) for name, values in given.items()
    }
    return float(trainer.model(**batch, use_cache=False).loss)


def _text(trainer: Trainer, row: Mapping[str, Any]) -> str:
    ids = _ids(row)
    if not ids:
        words = [value for value in row.values() if isinstance(value, str)]
        return " | ".join(words)[:TEXT_LENGTH]
    return decoded(trainer.processing_class, ids, TEXT_LENGTH)


def _tokens(row: Mapping[str, Any]) -> int | None:
    ids = _ids(row)
    return len(ids) if ids else None


def _ids(row: Mapping[str, Any]) -> list[int] | None:
    """The row's tokens; of preference data those of the chosen answer."""
    names = ("input_ids", "chosen_input_ids", "chosen_ids", "prompt_input_ids", "prompt_ids")
    return next((list(row[name]) for name in names if row.get(name)), None)


def _say(error: Exception) -> None:
    print(f"axolotl-runner: post-mortem cut short: {type(error).__name__}: {error}", flush=True)


def _is_repeatable(loader: Any) -> bool:
    """Whether the order of the rows follows from seed and epoch alone."""
    return isinstance(row_sampler(loader), SeedableRandomSampler | SequentialSampler)


def _is_long_to_pack(trainer: Trainer) -> bool:
    packed = bool(getattr(trainer.args, "sample_packing", False))
    return packed and len(trainer.train_dataset) > MOST_PACKED


def _flat(batch: Any) -> Iterator[int]:
    """A batch is a list of indices, with packing a list of such lists."""
    for item in batch:
        if isinstance(item, list | tuple | np.ndarray):
            yield from _flat(item)
        else:
            yield int(item)


@contextmanager
def _evaluating(model: torch.nn.Module) -> Iterator[None]:
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)


@contextmanager
def _generators_put_back() -> Iterator[None]:
    python, numpy = random.getstate(), np.random.get_state()
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
