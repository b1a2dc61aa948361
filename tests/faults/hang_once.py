"""A fault for tests: the trainer stands still in a given step, once, and never comes back.

In a task file: `plugins: [tests.faults.hang_once.HangOnce]` and `fault_step: 24`. It stands for
a rank that waits for another one, or a disk that is gone. The same step trained again passes.
"""

from __future__ import annotations

import threading
from typing import Any

from axolotl.integrations.base import BasePlugin
from pydantic import BaseModel
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from tests.faults.once import Marker


class HangOnceArgs(BaseModel):
    """The keys that this plugin adds to axolotl's."""

    fault_step: int = 24


class HangOnce(BasePlugin):  # type: ignore[misc]  # axolotl ships no types
    """Never end optimizer step `fault_step`, once per run."""

    def get_input_args(self) -> str:
        """Name the model of our keys for axolotl's validation."""
        return "tests.faults.hang_once.HangOnceArgs"

    def post_trainer_create(self, cfg: Any, trainer: Trainer) -> None:
        """Hang the fault into the trainer."""
        trainer.add_callback(StandStill(cfg.fault_step, Marker(cfg.output_dir, "hang-once")))


class StandStill(TrainerCallback):  # type: ignore[misc]  # transformers ships no types
    """Waits for ever in the middle of one step."""

    def __init__(self, step: int, marker: Marker) -> None:
        self.step = step
        self.marker = marker

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Strike."""
        if state.global_step + 1 == self.step and self.marker.take():
            stand_still()


def stand_still() -> None:
    """Wait for what never comes; no signal handler of Python runs meanwhile either."""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
