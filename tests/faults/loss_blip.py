"""A fault for tests: one step's loss is far too high, and nothing else happens.

In a task file: `plugins: [tests.faults.loss_blip.LossBlip]` and `blip_step: 24`. It stands for one
bad batch, which a run gets over by itself; only the number is changed, the gradients are right.
"""

from __future__ import annotations

from typing import Any

from axolotl.integrations.base import BasePlugin
from pydantic import BaseModel
from transformers import Trainer

BLIP = 80.0  # in the mean of ten steps still 8


class LossBlipArgs(BaseModel):
    """The keys that this plugin adds to axolotl's."""

    blip_step: int = 24


class LossBlip(BasePlugin):  # type: ignore[misc]  # axolotl ships no types
    """Add to the loss of step `blip_step`."""

    def get_input_args(self) -> str:
        """Name the model of our keys for axolotl's validation."""
        return "tests.faults.loss_blip.LossBlipArgs"

    def post_trainer_create(self, cfg: Any, trainer: Trainer) -> None:
        """Wrap the step over one micro batch."""
        train = trainer.training_step

        def blipping_step(*args: Any, **kwargs: Any) -> Any:
            loss = train(*args, **kwargs)
            at_blip = trainer.state.global_step + 1 == cfg.blip_step
            return loss + BLIP / trainer.args.gradient_accumulation_steps if at_blip else loss

        trainer.training_step = blipping_step
