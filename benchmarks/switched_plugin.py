"""Our plugin, switched off for every other block of steps: what it costs, paired in one training.

Imported by axolotl in the trainer's environment; writes a line a step to steps.jsonl of the run.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from pod.plugin import RunnerPlugin

BLOCK = 10
HOOKS = ("on_log", "on_save", "on_evaluate", "on_step_begin", "on_substep_end", "on_step_end")


class SwitchedPlugin(RunnerPlugin):
    """RunnerPlugin whose callback works only in the even blocks of steps."""

    def post_trainer_create(self, cfg: Any, trainer: Any) -> None:
        """Arm as usual, then put the switch and the stop-watch around the callback."""
        super().post_trainer_create(cfg, trainer)
        assert self.callback is not None
        for hook in HOOKS:
            setattr(self.callback, hook, _switched(getattr(self.callback, hook)))
        trainer.add_callback(StopWatch(Path(os.environ["AXR_RUN_DIR"]) / "steps.jsonl"))


def _switched(hook: Any) -> Any:
    def run(args: Any, state: Any, control: Any, **more: Any) -> None:
        if is_on(state.global_step):
            hook(args, state, control, **more)

    return run


def is_on(step: int) -> bool:
    """Whether the plugin works at this step."""
    return (step // BLOCK) % 2 == 0


class StopWatch(TrainerCallback):  # type: ignore[misc]  # transformers ships no types
    """Writes how long each step took, from the end of the step before, its log entry included."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.last: float | None = None
        self.step = 0

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The step before is over with all that belongs to it."""
        now = time.perf_counter()
        if self.last is not None:
            line = {"step": self.step, "on": is_on(self.step), "seconds": now - self.last}
            with self.file.open("a") as out:
                out.write(json.dumps(line) + "\n")
        self.step = state.global_step + 1
        self.last = time.perf_counter()
