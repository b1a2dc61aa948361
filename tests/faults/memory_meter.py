"""No fault: measures the memory of a training, for tests of its estimate.

In a task file: `plugins: [tests.faults.memory_meter.MemoryMeter]`. For each pass of the model,
forward and backward, `memory.json` beside the output folder gets {parameters, peak}: how many are
trained, and the most bytes that tensors held, weights and optimizer states included.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from axolotl.integrations.base import BasePlugin
from transformers import Trainer

from tests.faults.live_bytes import LiveBytes


class MemoryMeter(BasePlugin):  # type: ignore[misc]  # axolotl ships no types
    """Count during each pass."""

    def post_trainer_create(self, cfg: Any, trainer: Trainer) -> None:
        """Wrap the trainer's step."""
        note = Path(cfg.output_dir).parent / "memory.json"
        usual = trainer.training_step
        passes: list[dict[str, int]] = []

        def counted(model: torch.nn.Module, inputs: Any, *more: Any, **named: Any) -> torch.Tensor:
            held = [*model.parameters(), *model.buffers(), *_states(trainer), *_gradients(model)]
            with LiveBytes([*held, *(t for t in inputs.values() if hasattr(t, "shape"))]) as live:
                loss: torch.Tensor = usual(model, inputs, *more, **named)
            trained = sum(each.numel() for each in model.parameters() if each.requires_grad)
            passes.append({"parameters": trained, "peak": live.peak})
            note.write_text(json.dumps(passes))
            return loss

        trainer.training_step = counted


def _states(trainer: Trainer) -> list[torch.Tensor]:
    optimizer = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
    states = optimizer.state.values() if optimizer else ()
    return [each for state in states for each in state.values() if torch.is_tensor(each)]


def _gradients(model: torch.nn.Module) -> list[torch.Tensor]:
    return [each.grad for each in model.parameters() if each.grad is not None]
