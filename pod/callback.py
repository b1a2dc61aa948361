"""The trainer's callback: turns what the trainer does into events, alarms and obedience."""

from __future__ import annotations

import math
import os
import time
from typing import Any

import torch
from transformers import (
    EarlyStoppingCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from pod.reporter import Reporter, number
from pod.spikes import Alarm

LOOK_EVERY = 0.25  # seconds between two looks at control.json: a stat on a network disk takes 1 ms


class LossSpike(RuntimeError):
    """The training has gone wrong for good; the `alarm` event says since when and why."""


class AllStepsTrained(Exception):
    """The checkpoint already holds the planned last step; its weights are loaded."""


class RunnerCallback(TrainerCallback):  # type: ignore[misc]  # transformers ships no types
    """Reports each log entry, checkpoint and evaluation; raises LossSpike; obeys control.json."""

    def __init__(self, reporter: Reporter, trainer: Trainer) -> None:
        self.reporter = reporter
        self.trainer = trainer
        self.step = 0
        self.planned_steps: int | None = None
        self.loss: float | None = None
        self.stopped = False
        self.stopped_early = False
        self._logged_step = -1
        self._answered = 0
        self._looked_at = -math.inf
        self._control_changed_at = 0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Start counting where the trainer starts: at 0, or at the checkpoint's step.

        From a checkpoint of the last step the trainer would train one step too many (seen: step
        41 of 40), because it compares with the plan only after a step.
        """
        self.step = self._logged_step = state.global_step
        self.planned_steps = state.max_steps
        if 0 < state.max_steps <= state.global_step:
            raise AllStepsTrained

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Report an entry of the training log; raise LossSpike when it makes an alarm certain.

        Evaluations and the final summary carry no `loss`; a step that is logged twice counts once.
        """
        if not logs or "loss" not in logs or state.global_step <= self._logged_step:
            return
        step = self._logged_step = state.global_step
        self.loss = number(logs["loss"])
        grad_norm = number(logs.get("grad_norm"))
        alarm = self.reporter.step(
            step,
            loss=self.loss,
            grad_norm=grad_norm,
            lr=number(logs.get("learning_rate")),
            epoch=number(logs.get("epoch", state.epoch)),
        )
        if alarm is None and grad_norm is not None and not math.isfinite(grad_norm):
            alarm = self._alarm_if_weights_are_gone(step, grad_norm)
        if alarm is not None:
            onset = self.reporter.alarm(alarm, logging_steps=max(1, int(state.logging_steps)))
            raise LossSpike(f"{alarm.kind} from step {onset}, certain at {step}: {alarm.reason}")

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Report and record the checkpoint, once every rank has written its part."""
        self._any_rank(False)
        self.reporter.save(state.global_step)

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Report an evaluation."""
        self.reporter.eval(state.global_step, metrics or {})

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Obey a waiting command: `stop` saves this very step and ends the training."""
        self.step = state.global_step
        command = self._new_command()
        stop = command is not None and command.get("cmd") == "stop"
        if command is not None:
            self._answered = command["seq"]
            self.reporter.decision(
                self.step, seq=command["seq"], cmd=str(command.get("cmd")), done=stop
            )
        if self._any_rank(stop):
            self.stopped = True
            control.should_save = True
            control.should_training_stop = True

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Note where the training ended; the final model is not written yet."""
        self.step = state.global_step
        self.planned_steps = state.max_steps
        self.stopped_early = any(
            isinstance(callback, EarlyStoppingCallback)
            and callback.early_stopping_patience_counter >= callback.early_stopping_patience
            for callback in self.trainer.callback_handler.callbacks
        )

    def close(self) -> None:
        """Wait for the checkpoint that is being recorded."""
        self.reporter.recorder.close()

    def _new_command(self) -> dict[str, Any] | None:
        """Read control.json on rank 0, and only when it has changed."""
        now = time.monotonic()
        if not self.reporter.writes or now - self._looked_at < LOOK_EVERY:
            return None
        self._looked_at = now
        try:
            changed_at = os.stat(self.reporter.run_dir.control).st_mtime_ns
        except FileNotFoundError:
            return None
        if changed_at == self._control_changed_at:
            return None
        self._control_changed_at = changed_at
        command = self.reporter.command()
        return command if command is not None and command["seq"] > self._answered else None

    def _alarm_if_weights_are_gone(self, step: int, grad_norm: float) -> Alarm | None:
        """One NaN in one gradient makes every weight NaN, unless the optimizer skipped the step."""
        model = self.trainer.model
        weights = (weight for weight in model.parameters() if weight.requires_grad)
        gone = any(not bool(torch.isfinite(weight).all()) for weight in weights)
        if not self._any_rank(gone):
            return None
        return Alarm(step, step, "nonfinite", f"grad_norm {grad_norm}, and the weights with it")

    def _any_rank(self, flag: bool) -> bool:
        """True on every rank when it is true on one; also a barrier. Free with a single process."""
        if self.trainer.args.world_size <= 1:
            return flag
        shared = torch.tensor([int(flag)], device=self.trainer.args.device)
        torch.distributed.all_reduce(shared, op=torch.distributed.ReduceOp.MAX)
        return bool(shared.item())
