"""What the faults share that raise the learning rate: for single steps, unseen by the schedule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


class RaisedRate(TrainerCallback):  # type: ignore[misc]  # transformers ships no types
    """Multiplies the learning rate by `factor` in each step (from 1) for which `is_due` says so.

    The rate is put back right after the optimizer's step, before the schedule moves on, so no
    checkpoint and no later step knows of it.
    """

    def __init__(self, factor: float, is_due: Callable[[int], bool]) -> None:
        self.factor = factor
        self.is_due = is_due
        self.usual: list[float] = []

    def on_pre_optimizer_step(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        optimizer: torch.optim.Optimizer | None = None,
        **_: Any,
    ) -> None:
        """Raise it."""
        if optimizer is None or not self.is_due(state.global_step + 1):
            return
        self.usual = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] *= self.factor

    def on_optimizer_step(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        optimizer: torch.optim.Optimizer | None = None,
        **_: Any,
    ) -> None:
        """Put it back."""
        if optimizer is None or not self.usual:
            return
        for group, rate in zip(optimizer.param_groups, self.usual, strict=True):
            group["lr"] = rate
        self.usual = []
