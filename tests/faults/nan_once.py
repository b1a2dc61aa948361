"""A fault for tests and the bench: one weight becomes NaN once, after a given optimizer step.

In a task file: `plugins: [tests.faults.nan_once.NanOnce]` and `fault_step: 24`. From the next step
on the loss is NaN, which axolotl logs as 0.0 unless told otherwise, and after that step every
weight is NaN. The same steps trained again are clean.
"""

from __future__ import annotations

from typing import Any

import torch
from axolotl.integrations.base import BasePlugin
from pydantic import BaseModel
from transformers import Trainer

from tests.faults.once import Marker, OnceAfterStep


class NanOnceArgs(BaseModel):
    """The keys that this plugin adds to axolotl's."""

    fault_step: int = 24


class NanOnce(BasePlugin):  # type: ignore[misc]  # axolotl ships no types
    """Put a NaN into the weights after optimizer step `fault_step`, once per run."""

    def get_input_args(self) -> str:
        """Name the model of our keys for axolotl's validation."""
        return "tests.faults.nan_once.NanOnceArgs"

    def post_trainer_create(self, cfg: Any, trainer: Trainer) -> None:
        """Hang the fault into the trainer."""
        marker = Marker(cfg.output_dir, "nan-once")
        trainer.add_callback(OnceAfterStep(cfg.fault_step, marker, poison))


def poison(model: torch.nn.Module) -> None:
    """Make one number NaN, in a norm if there is one: an embedding's row may never be looked up."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    norms = [weight for weight in weights if weight.dim() == 1]
    (norms or weights)[0].view(-1)[0] = torch.nan
