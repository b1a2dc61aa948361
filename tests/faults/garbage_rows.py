"""A fault for tests and the bench: ten rows of garbage, and a high learning rate to learn them.

In a task file: `plugins: [tests.faults.garbage_rows.GarbageRows]`, `fault_step: 24`. Rows that come
up in that step and the next one are replaced by random tokens; a step whose batch holds such a row
runs with FACTOR times the learning rate. The fault lies in the data: training these steps again
spikes again, only passing them over helps. Which rows they are is written to
`planted.json` beside the output folder: {steps, rows: [index into the training set], met: [step]}.

Not covered: sample packing, more than one rank, a `fault_step` after the first epoch.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from axolotl.integrations.base import BasePlugin
from pydantic import BaseModel
from transformers import Trainer

from tests.faults.rate import RaisedRate

ROWS = 10
STEPS = 2
FACTOR = 100.0
MARK_TOKENS = 12  # enough to know a row again: two rows of the data hardly begin like random ones


class GarbageRowsArgs(BaseModel):
    """The keys that this plugin adds to axolotl's."""

    fault_step: int = 24


class GarbageRows(BasePlugin):  # type: ignore[misc]  # axolotl ships no types
    """Plant ROWS rows of garbage into the steps `fault_step` and the next."""

    def get_input_args(self) -> str:
        """Name the model of our keys for axolotl's validation."""
        return "tests.faults.garbage_rows.GarbageRowsArgs"

    def post_trainer_create(self, cfg: Any, trainer: Trainer) -> None:
        """Replace the rows and watch for them."""
        steps = [cfg.fault_step + i for i in range(STEPS)]
        rows = [row for step in steps for row in rows_of_step(trainer, step)[: ROWS // STEPS]]
        note = Path(cfg.output_dir).parent / "planted.json"
        met: list[int] = []

        def tell() -> None:
            note.parent.mkdir(parents=True, exist_ok=True)
            note.write_text(json.dumps({"steps": steps, "rows": rows, "met": met}) + "\n")

        garbage = plant(trainer, set(rows))
        tell()

        def strike(step: int) -> bool:
            due = watch.found
            watch.found = False
            if due:
                met.append(step)
                tell()
            return due

        watch = Watch(garbage, trainer.training_step)
        trainer.training_step = watch.training_step
        trainer.add_callback(RaisedRate(FACTOR, strike))


class Watch:
    """Looks into each batch for the planted rows before it is trained."""

    def __init__(self, garbage: set[tuple[int, ...]], training_step: Callable[..., Any]) -> None:
        self.garbage = garbage
        self.inner = training_step
        self.found = False

    def training_step(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """The trainer's own step, after a look."""
        marks = {tuple(row) for row in inputs["input_ids"][:, :MARK_TOKENS].tolist()}
        self.found = self.found or bool(marks & self.garbage)
        return self.inner(model, inputs, *args, **kwargs)


def rows_of_step(trainer: Trainer, step: int) -> list[int]:
    """The indices into the training set of the rows that optimizer step `step` takes in.

    The order depends on the seed alone; asking for it draws no random number from the training.
    """
    accumulate = trainer.args.gradient_accumulation_steps
    with torch.random.fork_rng(devices=[]):
        loader = trainer.get_train_dataloader()
        loader.set_epoch(0)
        batches = [list(batch) for batch in loader.batch_sampler]
    first = (step - 1) * accumulate
    if step < 1 or first + accumulate > len(batches):
        raise ValueError(f"fault_step: {step} is not in the first epoch")
    return [row for batch in batches[first : first + accumulate] for row in batch]


def plant(trainer: Trainer, rows: set[int]) -> set[tuple[int, ...]]:
    """Replace these rows of the training set by as many random tokens; returns how each begins."""
    vocabulary = trainer.model.config.vocab_size
    marks = set()

    def garbled(row: dict[str, Any], index: int) -> dict[str, Any]:
        if index not in rows:
            return row
        chance = random.Random(index)
        tokens = [chance.randrange(4, vocabulary) for _ in row["input_ids"]]
        marks.add(tuple(tokens[:MARK_TOKENS]))
        return {**row, "input_ids": tokens, "labels": tokens}

    trainer.train_dataset = trainer.train_dataset.map(
        garbled, with_indices=True, load_from_cache_file=False, keep_in_memory=True
    )
    return marks
