"""The trainer's callback: turns what the trainer does into events, alarms and obedience."""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import (
    EarlyStoppingCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from pod import ranks, rungs
from pod.commands import Commands
from pod.postmortem import examine, weights_are_finite
from pod.pulse import Heart
from pod.reporter import Reporter, number
from pod.spikes import Alarm


class LossSpike(RuntimeError):
    """The training has gone wrong for good; the `alarm` event says since when and why."""


class AllStepsTrained(Exception):
    """The checkpoint already holds the planned last step; its weights are loaded."""


class SavedForSkip(Exception):
    """The step before the window to skip is on disk, in `checkpoint`."""

    def __init__(self, checkpoint: Path) -> None:
        super().__init__(str(checkpoint))
        self.checkpoint = checkpoint


@dataclass(frozen=True)
class Entry:
    """One pass of trainer.train: what it starts from, and what is special about it.

    `leave_at` is the step to save and leave at, before a window to skip. `skipped` is the window
    that was skipped to get here; `checkpoint` is then a doctored copy, of no use after a step.
    """

    checkpoint: Path | None = None
    leave_at: int | None = None
    skipped: rungs.Skip | None = None


def _tokens_per_second(logs: dict[str, Any], processes: int) -> float | None:
    """Tokens trained on in a second by all GPUs; axolotl logs those of one (`include_tkps`), and
    none at the first entry.
    """
    one = number(logs.get("tokens/train_per_sec_per_gpu"))
    return None if one is None else one * processes


class RunnerCallback(TrainerCallback):  # type: ignore[misc]  # transformers ships no types
    """Reports each log entry, checkpoint and evaluation; raises LossSpike; obeys control.json.

    `can_rewind` tells whether this trainer may be trained again in the same process; `heart` beats
    with each step, and knows the phase.
    """

    def __init__(
        self,
        reporter: Reporter,
        trainer: Trainer,
        *,
        can_rewind: bool = False,
        heart: Heart | None = None,
    ) -> None:
        self.reporter = reporter
        self.trainer = trainer
        self.can_rewind = can_rewind
        self.heart = heart or Heart(reporter.run_dir, writes=False)
        self.commands = Commands(reporter.run_dir.control)
        self.entry = Entry()
        self.step = 0
        self.planned_steps: int | None = None
        self.loss: float | None = None
        self.stopped = False
        self.stopped_early = False
        self._logged_step = -1
        self._stepped = False  # in this pass of the trainer

    @property
    def patience(self) -> float:
        """Seconds that an alarm is followed by waiting for a decision; 0: the process ends."""
        return self.reporter.warm_seconds if self.can_rewind else 0.0

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        optimizer: Any = None,
        lr_scheduler: Any = None,
        **_: Any,
    ) -> None:
        """Start counting where the trainer starts, do the rung, look into the last alarm.

        From a checkpoint of the last step the trainer would train one step too many (seen: step
        41 of 40), because it compares with the plan only after a step.
        """
        self.heart.enter("loading", state.global_step)
        self._stepped = False
        self.step = self._logged_step = state.global_step
        self.planned_steps = state.max_steps
        self._do_rung(state, optimizer, lr_scheduler)
        self._examine_last_alarm()
        if self.entry.leave_at == state.global_step:  # nothing to train before the window
            self.trainer._save_checkpoint(self.trainer.model, trial=None)
            raise SavedForSkip(self._checkpoint(state.global_step))
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
            tokens_per_second=_tokens_per_second(logs, args.world_size),
        )
        alarm = self._agreed(alarm, step, grad_norm)
        if alarm is not None:
            self._raise(alarm, logging_steps=max(1, int(state.logging_steps)))

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Report and record the checkpoint, once every rank has written its part."""
        ranks.any_rank(self.trainer, False)
        self.reporter.save(state.global_step)
        if state.global_step == self.entry.leave_at and not self.stopped:
            self.close()
            raise SavedForSkip(self._checkpoint(state.global_step))

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

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """An evaluation or a save is over by now; the first step compiles what it needs."""
        self.heart.enter("training" if self._stepped else "loading", state.global_step)

    def on_substep_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """A sign of life in the middle of a step."""
        self.heart.beat()

    def on_prediction_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """A sign of life in the middle of an evaluation."""
        self.heart.beat()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Obey a waiting command: `stop` saves this very step and ends the training."""
        self._stepped = True
        self.heart.enter("training", state.global_step)
        self.step = state.global_step
        command = self.commands.take() if self.reporter.writes else None
        stop = command is not None and command.get("cmd") == "stop"
        if command is not None:
            self.answer(command, done=stop)
        if ranks.any_rank(self.trainer, stop):
            self.stopped = True
            control.should_save = True
            control.should_training_stop = True
        if self.step == self.entry.leave_at:
            control.should_save = True
        self._drop_copy()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Note where the training ended; the final model is not written yet."""
        self.heart.enter("saving", state.global_step)
        self.step = state.global_step
        self.planned_steps = state.max_steps
        self.stopped_early = any(
            isinstance(callback, EarlyStoppingCallback)
            and callback.early_stopping_patience_counter >= callback.early_stopping_patience
            for callback in self.trainer.callback_handler.callbacks
        )

    def show_phases(self) -> None:
        """Let evaluations and saves show in the pulse: the trainer has no hook before them."""
        trainer = self.trainer
        trainer.evaluate = self.heart.during("evaluating", trainer.evaluate)
        trainer._save_checkpoint = self.heart.during("saving", trainer._save_checkpoint)

    def arm(self) -> None:
        """Say that the attempt is guarded from here on."""
        args = self.trainer.args
        self.reporter.recorder.batch = {
            "world_size": args.world_size,
            "micro_batch_size": args.per_device_train_batch_size,
            "gradient_accumulation_steps": args.gradient_accumulation_steps,
        }
        self.reporter.armed(
            planned_steps=args.max_steps if args.max_steps > 0 else None,
            logging_steps=args.logging_steps,
            save_steps=args.save_steps,
        )

    def turn_to(self, reporter: Reporter) -> None:
        """Go on for another attempt."""
        self.reporter = reporter
        self.loss = None
        self.stopped = self.stopped_early = False

    def answer(self, command: dict[str, Any], *, done: bool) -> None:
        """Say that a command was seen, and whether it was carried out."""
        self.reporter.decision(
            self.step, seq=command["seq"], cmd=str(command.get("cmd")), done=done
        )

    def examine_own_alarm(self) -> None:
        """No attempt of this process follows: say what can be said with the weights there are."""
        window = ranks.from_first(self.trainer, self.reporter.own_window())
        if window is not None:
            self.reporter.postmortem(window, examine(self.trainer, window))

    def close(self) -> None:
        """Wait for the checkpoint that is being recorded; leave nothing lying about."""
        self.reporter.recorder.close()
        self._drop_copy()

    def _drop_copy(self) -> None:
        """A doctored checkpoint is read to its end before the first step ends."""
        copy = self.entry.checkpoint
        if self.entry.skipped is None or copy is None:
            return
        self.entry = Entry()
        if self.reporter.writes:
            shutil.rmtree(copy, ignore_errors=True)

    def _do_rung(self, state: TrainerState, optimizer: Any, scheduler: Any) -> None:
        change, entry = self.reporter.change, self.entry
        if entry.skipped is not None:
            rungs.advance_schedule(scheduler, len(entry.skipped))
        factors = rungs.apply_factors(
            change.factors,
            state,
            optimizer,
            scheduler,
            loaded=rungs.has_optimizer(entry.checkpoint),
        )
        if change.reset_moments:
            rungs.reset_moments(optimizer)
        if entry.leave_at is None:
            self.reporter.changed(
                state.global_step,
                factors,
                entry.skipped,
                moments="reset" if change.reset_moments else "keep",
                **rungs.real_values(optimizer),
            )

    def _examine_last_alarm(self) -> None:
        window = ranks.from_first(self.trainer, self.reporter.window)
        self.reporter.window = None
        if window is not None:
            self.reporter.postmortem(window, examine(self.trainer, window))

    def _raise(self, alarm: Alarm, *, logging_steps: int) -> None:
        waiting = self.patience > 0
        if waiting:
            self.close()  # from the alarm on checkpoints may be moved away
        onset = self.reporter.alarm(alarm, logging_steps=logging_steps, waiting=waiting)
        raise LossSpike(f"{alarm.kind} from step {onset}, certain at {alarm.step}: {alarm.reason}")

    def _agreed(self, alarm: Alarm | None, step: int, grad_norm: float | None) -> Alarm | None:
        """One alarm for all ranks: grad_norm is each rank's own, and a failing GPU is alone."""
        broken = grad_norm is not None and not math.isfinite(grad_norm)
        if not ranks.any_rank(self.trainer, alarm is not None or broken):
            return None
        # One NaN in one gradient makes every weight NaN, unless the optimizer skipped the step.
        if alarm is None and not weights_are_finite(self.trainer.model):
            reason = f"grad_norm {grad_norm}, and the weights with it"
            alarm = Alarm(step, step, "nonfinite", reason)
        return next((own for own in ranks.from_all(self.trainer, [alarm]) if own), None)

    def _checkpoint(self, step: int) -> Path:
        return Path(self.trainer.args.output_dir) / f"checkpoint-{step}"
