"""What the faults share that strike once: a marker beside the output folder outlives processes.

So the same steps trained again, in the same process or in a new one, are clean.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


class Marker:
    """A file that says that a fault has struck in this run; `output_dir` is axolotl's."""

    def __init__(self, output_dir: str, name: str) -> None:
        self.path = Path(output_dir).parent / f"fault-{name}"

    def take(self) -> bool:
        """True the first time in a run, False ever after."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.path.open("x").close()
        except FileExistsError:
            return False
        return True


class OnceAfterStep(TrainerCallback):  # type: ignore[misc]  # transformers ships no types
    """Does something to the model after one optimizer step, unless the marker is taken."""

    def __init__(self, step: int, marker: Marker, ruin: Callable[[torch.nn.Module], None]) -> None:
        self.step = step
        self.marker = marker
        self.ruin = ruin

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: torch.nn.Module | None = None,
        **_: Any,
    ) -> None:
        """Strike."""
        if model is not None and state.global_step == self.step and self.marker.take():
            with torch.no_grad():
                self.ruin(model)
