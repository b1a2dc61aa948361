"""Callbacks as a user commits them, for `runner.callbacks: [tests.faults.user_callbacks.Notes]`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from transformers import TrainerCallback


class Notes(TrainerCallback):  # type: ignore[misc]  # transformers ships no types
    """Appends to notes-RANK.jsonl in the run's folder what it is told: {hook, step, object}."""

    def _note(self, hook: str, step: int) -> None:
        file = Path(os.environ["AXR_RUN_DIR"]) / f"notes-{os.environ.get('RANK', '0')}.jsonl"
        with file.open("a") as out:
            out.write(json.dumps({"hook": hook, "step": step, "object": id(self)}) + "\n")

    def on_init_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The trainer is there."""
        self._note("init", state.global_step)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """A pass of the trainer begins."""
        self._note("begin", state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """An entry of the training log."""
        if "loss" in (logs or {}):
            self._note("log", state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The last step is done."""
        self._note("end", state.global_step)


class Failing(TrainerCallback):  # type: ignore[misc]  # transformers ships no types
    """Fails after step 5."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Fail."""
        if state.global_step == 5:
            raise ValueError("no sixth step")


class Needy(TrainerCallback):  # type: ignore[misc]  # transformers ships no types
    """Wants to know something that a task file can't say."""

    def __init__(self, path: str) -> None:
        self.path = path
