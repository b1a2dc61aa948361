"""A fault for tests and the bench: the learning rate is far too high for a few steps.

In a task file: `plugins: [tests.faults.lr_burst.LrBurst]`, `fault_step: 24` (the first of them).
It stands for a broken schedule or a wrong resume. The logged rate does not show it. With
`fault_again: true` it comes back each time these steps are trained, else it strikes once a run.
"""

from __future__ import annotations

from typing import Any

from axolotl.integrations.base import BasePlugin
from pydantic import BaseModel
from transformers import Trainer

from tests.faults.once import Marker
from tests.faults.rate import RaisedRate

FACTOR = 1000.0
STEPS = 3


class LrBurstArgs(BaseModel):
    """The keys that this plugin adds to axolotl's."""

    fault_step: int = 24
    fault_again: bool = False


class LrBurst(BasePlugin):  # type: ignore[misc]  # axolotl ships no types
    """Train the steps from `fault_step` on with FACTOR times the learning rate, STEPS of them."""

    def get_input_args(self) -> str:
        """Name the model of our keys for axolotl's validation."""
        return "tests.faults.lr_burst.LrBurstArgs"

    def post_trainer_create(self, cfg: Any, trainer: Trainer) -> None:
        """Hang the fault into the trainer."""
        marker = Marker(cfg.output_dir, "lr-burst")
        burst = Burst(cfg.fault_step, marker, again=bool(cfg.fault_again))
        trainer.add_callback(RaisedRate(FACTOR, burst.is_due))


class Burst:
    """Which steps are due; the first one takes the marker for all of them.

    An alarm in the middle of the burst ends it for good: going back begins before its first step,
    where the marker is found taken.
    """

    def __init__(self, first: int, marker: Marker, *, again: bool) -> None:
        self.first = first
        self.marker = marker
        self.again = again
        self.struck = False

    def is_due(self, step: int) -> bool:
        """Whether this step is trained with the raised rate."""
        if step == self.first:
            self.struck = self.marker.take() or self.again
        return self.struck and self.first <= step < self.first + STEPS
