"""Writes down which rows each optimizer step is trained on, for tests of the data's order.

In a task file: `plugins: [tests.faults.record_rows.RecordRows]`. It appends to `rows.jsonl` beside
the output folder, one line a micro batch: {"attempt", "step", "rows": [hash of a row's tokens]}.
With sample packing a row is a bin of several. No fault by itself.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from axolotl.integrations.base import BasePlugin
from transformers import Trainer


class RecordRows(BasePlugin):  # type: ignore[misc]  # axolotl ships no types
    """Record the rows that reach the model, where no prefetching runs ahead of the training."""

    def post_trainer_create(self, cfg: Any, trainer: Trainer) -> None:
        """Wrap the step over one micro batch."""
        folder = Path(cfg.output_dir).parent
        attempt = json.loads((folder / "attempt.json").read_text())["attempt"]
        train = trainer.training_step

        def recording_step(model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
            line = {
                "attempt": attempt,
                "step": trainer.state.global_step + 1,
                "rows": row_hashes(inputs["input_ids"], inputs.get("attention_mask")),
            }
            with (folder / "rows.jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")
            return train(model, inputs, *args, **kwargs)

        trainer.training_step = recording_step


def row_hashes(tokens: torch.Tensor, mask: torch.Tensor | None) -> list[str]:
    """A short hash of each row of [rows, length], padding left out."""
    found = []
    for number, row in enumerate(tokens.tolist()):
        seen = mask[number].tolist() if mask is not None else [1] * len(row)
        text = str([token for token, used in zip(row, seen, strict=True) if used])
        found.append(hashlib.sha256(text.encode()).hexdigest()[:12])
    return found
