"""A fault for tests and the demo: the weights are ruined once, after a given optimizer step.

In a task file: `plugins: [tests.faults.weights_once.WeightsOnce]` and `fault_step: 24`. It stands
for what a bad batch or a failing GPU does: the loss jumps at the next step and stays high, and
every checkpoint from then on is worthless. The same steps trained again are clean.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from axolotl.integrations.base import BasePlugin
from pydantic import BaseModel
from transformers import Trainer

from tests.faults.once import Marker, OnceAfterStep

NOISE = 6.0  # standard deviations of each matrix; gives a loss of about 8 where 3 was


class WeightsOnceArgs(BaseModel):
    """The keys that this plugin adds to axolotl's."""

    fault_step: int = 24
    fault_noise: float = NOISE


class WeightsOnce(BasePlugin):  # type: ignore[misc]  # axolotl ships no types
    """Ruin the weights after optimizer step `fault_step`, once per run."""

    def get_input_args(self) -> str:
        """Name the model of our keys for axolotl's validation."""
        return "tests.faults.weights_once.WeightsOnceArgs"

    def post_trainer_create(self, cfg: Any, trainer: Trainer) -> None:
        """Hang the fault into the trainer."""
        marker = Marker(cfg.output_dir, "weights-once")
        trainer.add_callback(
            OnceAfterStep(cfg.fault_step, marker, partial(add_noise, deviations=cfg.fault_noise))
        )


def add_noise(model: torch.nn.Module, deviations: float = NOISE) -> None:
    """Add noise of so many standard deviations to every trained matrix, always the same."""
    generator = torch.Generator().manual_seed(0)
    for weight in model.parameters():
        if weight.requires_grad and weight.dim() == 2:
            noise = torch.randn(weight.shape, generator=generator).to(weight)
            weight += deviations * weight.std() * noise
