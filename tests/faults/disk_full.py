"""A fault for tests: the disk is full while a checkpoint is written, once, at a given step.

In a task file: `plugins: [tests.faults.disk_full.DiskFull]` and `fault_step: 20`, a multiple of
save_steps. The optimizer's file is cut off and the trainer dies, as with a real full disk.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

from axolotl.integrations.base import BasePlugin
from pydantic import BaseModel
from transformers import Trainer

from tests.faults.once import Marker


class DiskFullArgs(BaseModel):
    """The keys that this plugin adds to axolotl's."""

    fault_step: int = 20


class DiskFull(BasePlugin):  # type: ignore[misc]  # axolotl ships no types
    """Leave a partial checkpoint of step `fault_step`."""

    def get_input_args(self) -> str:
        """Name the model of our keys for axolotl's validation."""
        return "tests.faults.disk_full.DiskFullArgs"

    def post_trainer_create(self, cfg: Any, trainer: Trainer) -> None:
        """Wrap the saving of the optimizer."""
        marker = Marker(cfg.output_dir, "disk-full")
        save = trainer._save_optimizer_and_scheduler

        def save_a_part(folder: str) -> None:
            save(folder)
            if trainer.state.global_step == cfg.fault_step and marker.take():
                file = Path(folder, "optimizer.pt")
                os.truncate(file, file.stat().st_size // 3)
                Path(folder, "scheduler.pt").unlink()
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file))

        trainer._save_optimizer_and_scheduler = save_a_part
