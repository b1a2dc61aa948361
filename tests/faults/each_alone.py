"""No fault but a second opinion: the loss of each evaluation row, asked of the model by itself.

In a task file: `plugins: [tests.faults.each_alone.EachAlone]`. After each evaluation it appends to
`alone.jsonl` beside the output folder {step, losses: [loss of row 0, …]}, null for a row without
labels.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from axolotl.integrations.base import BasePlugin
from transformers import Trainer, TrainerCallback


class EachAlone(BasePlugin):  # type: ignore[misc]  # axolotl ships no types
    """Ask after each evaluation."""

    def post_trainer_create(self, cfg: Any, trainer: Trainer) -> None:
        """Look on from now on."""
        trainer.add_callback(Asking(trainer, Path(cfg.output_dir).parent / "alone.jsonl"))


class Asking(TrainerCallback):  # type: ignore[misc]  # transformers ships no types
    """One forward pass a row, with nothing else in the batch."""

    def __init__(self, trainer: Trainer, file: Path) -> None:
        self.trainer = trainer
        self.file = file

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Write the losses down."""
        model = self.trainer.model
        was_training = model.training
        model.eval()
        with torch.no_grad():
            losses = [self._loss(model, row) for row in self.trainer.eval_dataset]
        model.train(was_training)
        with self.file.open("a") as file:
            file.write(json.dumps({"step": state.global_step, "losses": losses}) + "\n")

    def _loss(self, model: Any, row: dict[str, Any]) -> float | None:
        if all(label == -100 for label in row["labels"][1:]):
            return None
        ids, labels = torch.tensor([row["input_ids"]]), torch.tensor([row["labels"]])
        return float(model(input_ids=ids, labels=labels, use_cache=False).loss)
