"""A fault for tests: the trainer prints the secrets of its environment and dies with them.

In a task file: `plugins: [tests.faults.tell_secrets.TellSecrets]`.
"""

from __future__ import annotations

import os
from typing import Any

from axolotl.integrations.base import BasePlugin
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments


class TellSecrets(BasePlugin):  # type: ignore[misc]  # axolotl ships no types
    """Fails before the first step, after it has printed every variable that it has."""

    def post_trainer_create(self, cfg: Any, trainer: Trainer) -> None:
        """Hang the fault into the trainer."""
        trainer.add_callback(_Tell())


class _Tell(TrainerCallback):  # type: ignore[misc]  # transformers ships no types
    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Strike."""
        print(dict(os.environ), flush=True)
        token, greeting, own = (os.environ[n] for n in ("HF_TOKEN", "GREETING", "AXR_TOKEN"))
        raise ValueError(f"told {token} and {greeting}, with {own}")
