"""A fault for tests: the weights are ruined after a given optimizer step, each time it is trained.

In a task file: `plugins: [tests.faults.weights_always.WeightsAlways]` and `fault_step: 24`. It
stands for what lies in the data or the settings: a replay meets it again, and only an attempt that
does not train this step gets past it.
"""

from __future__ import annotations

from typing import Any

import torch
from axolotl.integrations.base import BasePlugin
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from tests.faults.weights_once import NOISE


class WeightsAlways(BasePlugin):  # type: ignore[misc]  # axolotl ships no types
    """Ruin the weights after optimizer step `fault_step`, in every attempt."""

    def get_input_args(self) -> str:
        """Name the model of our keys for axolotl's validation."""
        return "tests.faults.weights_once.WeightsOnceArgs"

    def post_trainer_create(self, cfg: Any, trainer: Trainer) -> None:
        """Hang the fault into the trainer."""
        trainer.add_callback(RuinWeightsAgain(cfg.fault_step))


class RuinWeightsAgain(TrainerCallback):  # type: ignore[misc]  # transformers ships no types
    """Adds noise to all matrices after one step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: torch.nn.Module | None = None,
        **_: Any,
    ) -> None:
        """Strike."""
        if model is None or state.global_step != self.step:
            return
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for weight in model.parameters():
                if weight.requires_grad and weight.dim() == 2:
                    noise = torch.randn(weight.shape, generator=generator).to(weight)
                    weight += NOISE * weight.std() * noise
