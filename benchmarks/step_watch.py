"""For a training without us: the time of each step, one JSON line each, in $BENCH_STEPS.

Imported by axolotl in the trainer's environment.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from axolotl.integrations.base import BasePlugin
from transformers import Trainer, TrainerCallback

STEPS = "BENCH_STEPS"


class StepWatch(BasePlugin):  # type: ignore[misc]  # axolotl ships no types
    """Note when each step ends."""

    def post_trainer_create(self, cfg: Any, trainer: Trainer) -> None:
        """Hang the watch into the trainer."""
        trainer.add_callback(_Watch(Path(os.environ[STEPS])))


class _Watch(TrainerCallback):  # type: ignore[misc]  # transformers ships no types
    def __init__(self, file: Path) -> None:
        self.file = file

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        line = json.dumps({"step": state.global_step, "t": time.time()})
        with self.file.open("a") as file:
            file.write(line + "\n")
