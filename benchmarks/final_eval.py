"""An axolotl plugin that evaluates the final model, whatever ended the training.

Imported by axolotl in the trainer's environment, by us and by axolotl alone in the same way. Writes
final.json beside the output folder: {step, eval_loss}, the loss as text when it is not finite.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from axolotl.integrations.base import BasePlugin
from transformers import Trainer


class FinalEval(BasePlugin):  # type: ignore[misc]  # axolotl ships no types
    """Evaluate once, after the training and before the model is written."""

    def __init__(self) -> None:
        super().__init__()
        self.trainer: Trainer | None = None

    def post_trainer_create(self, cfg: Any, trainer: Trainer) -> None:
        """Keep the trainer: the later hooks get the model only."""
        self.trainer = trainer

    def post_train(self, cfg: Any, model: Any) -> None:
        """Axolotl calls this twice; the second time, after the save, there is nothing to do."""
        trainer, self.trainer = self.trainer, None
        if trainer is None:
            return
        step = trainer.state.global_step
        loss = float(trainer.evaluate()["eval_loss"])
        value = loss if math.isfinite(loss) else str(loss)
        path = Path(cfg.output_dir).parent / "final.json"
        path.write_text(json.dumps({"step": step, "eval_loss": value}) + "\n")
