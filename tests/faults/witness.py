"""No fault but a witness: the rows and the optimizer's real values of each step that is trained.

In a task file: `plugins: [tests.faults.witness.Witness]`. Appends to `witness.jsonl` beside the
output folder (of rank 0) one line a step: {pass, step, rows, lr, weight_decay, moments}. `pass`
counts the entries into trainer.train in this process, `rows` are hashes of the rows' tokens, and
`moments` is the step count that the optimizer's averages have before the step.

Also lets checkpoints of several ranks on a CPU be loaded, which torch 2.13 refuses to.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from axolotl.integrations.base import BasePlugin
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments


class Witness(BasePlugin):  # type: ignore[misc]  # axolotl ships no types
    """Note what is trained."""

    def post_trainer_create(self, cfg: Any, trainer: Trainer) -> None:
        """Look on from now on."""
        torch.serialization.register_package(
            5, lambda _: None, lambda s, place: s if str(place).startswith("cpu:") else None
        )
        notes = Notes(Path(cfg.output_dir).parent / "witness.jsonl")
        notes.training_step = trainer.training_step
        trainer.training_step = notes.look
        trainer.add_callback(notes)


class Notes(TrainerCallback):  # type: ignore[misc]  # transformers ships no types
    """Collects the rows of a step and writes them down with the optimizer's values."""

    training_step: Callable[..., Any]

    def __init__(self, file: Path) -> None:
        self.file = file
        self.passes = 0
        self.rows: list[str] = []

    def look(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """The trainer's own step, after a look at its rows."""
        for row in inputs["input_ids"].tolist():
            self.rows.append(hashlib.sha256(json.dumps(row).encode()).hexdigest()[:12])
        return self.training_step(model, inputs, *args, **kwargs)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Another pass."""
        self.passes += 1
        self.rows = []

    def on_pre_optimizer_step(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        optimizer: Any = None,
        **_: Any,
    ) -> None:
        """Write the step down, before it is done."""
        counts = [float(state["step"]) for state in optimizer.state.values() if "step" in state]
        line = {
            "pass": self.passes,
            "step": state.global_step + 1,
            "rows": self.rows,
            "lr": optimizer.param_groups[0]["lr"],
            "weight_decay": optimizer.param_groups[0]["weight_decay"],
            "moments": max(counts, default=0.0),
        }
        self.rows = []
        if state.is_world_process_zero:
            with self.file.open("a") as file:
                file.write(json.dumps(line) + "\n")
