"""A fault for tests: a step does not fit into memory when more than a few rows are taken at once.

In a task file: `plugins: [tests.faults.memory_full.MemoryFull]`, `fault_step: 12` and `fault_rows:
4`. It raises what torch raises on a GPU. The same step with a smaller micro batch passes.
"""

from __future__ import annotations

from typing import Any

import torch
from axolotl.integrations.base import BasePlugin
from pydantic import BaseModel
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments


class MemoryFullArgs(BaseModel):
    """The keys that this plugin adds to axolotl's."""

    fault_step: int = 12
    fault_rows: int = 4


class MemoryFull(BasePlugin):  # type: ignore[misc]  # axolotl ships no types
    """Out of memory in optimizer step `fault_step` with more than `fault_rows` rows at once."""

    def get_input_args(self) -> str:
        """Name the model of our keys for axolotl's validation."""
        return "tests.faults.memory_full.MemoryFullArgs"

    def post_trainer_create(self, cfg: Any, trainer: Trainer) -> None:
        """Hang the fault into the trainer."""
        trainer.add_callback(RunOutOfMemory(cfg.fault_step, cfg.fault_rows))


class RunOutOfMemory(TrainerCallback):  # type: ignore[misc]  # transformers ships no types
    """Raises at the beginning of one step."""

    def __init__(self, step: int, rows: int) -> None:
        self.step = step
        self.rows = rows

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Strike."""
        if state.global_step == self.step - 1 and args.per_device_train_batch_size > self.rows:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
