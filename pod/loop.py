"""trainer.train, entered again in the same process: past a window to skip, or back after an alarm.

After an alarm the trainer waits up to attempt.json's `warm_seconds` for a command in control.json:

    {seq, cmd: "rewind", attempt, checkpoint}   go back to this checkpoint; attempt.json is by then
                                                the coming attempt's. Answered by `rewound`.
    any other                                   end. Answered by `decision`.

The losses after it are those of a new process to the last digit, without the seconds to minutes
that one takes to load everything. Rank 0 reads and decides, all ranks follow.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer

from pod import ranks, rungs
from pod.callback import Entry, LossSpike, RunnerCallback, SavedForSkip
from pod.reporter import Reporter
from pod.rundir import read_json

LOOK_EVERY = 0.1  # seconds; nothing else is to be done meanwhile
DOCTORED = "doctored"  # beside out/, where no rotation and no search for checkpoints finds it
# What these callbacks have counted belongs to the steps that are taken back.
_COUNTERS = ("early_stopping_patience_counter", "violations")


@dataclass(frozen=True)
class Decision:
    """What follows an alarm: `attempt` (attempt.json) from `checkpoint`, or None: the end."""

    seq: int = 0
    checkpoint: Path | None = None
    attempt: dict[str, Any] | None = None


def why_not_rewind(trainer: Trainer, cfg: Any) -> str | None:
    """Return why this trainer can't be trained again in the same process, None when it can."""
    reasons = {
        "DeepSpeed": trainer.is_deepspeed_enabled,
        "FSDP": trainer.is_fsdp_enabled,
        "save_only_model: no optimizer to go back to": trainer.args.save_only_model,
        "auto_find_batch_size": trainer.args.auto_find_batch_size,
        "ReLoRA merges into weights that no checkpoint puts back": getattr(cfg, "relora", None),
        # Generated answers are kept for several steps, counted apart from the trainer's own.
        "generated data": hasattr(trainer, "_buffered_inputs"),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


class TrainingLoop:
    """Stands in for trainer.train; returns or raises what its last pass does."""

    def __init__(
        self,
        train: Callable[..., Any],
        callback: RunnerCallback,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._train = train
        self._callback = callback
        self._trainer = callback.trainer
        self._clock = clock
        self._sleep = sleep

    def __call__(self, resume_from_checkpoint: Any = None, **kwargs: Any) -> Any:
        """Train; raises LossSpike when no rewind follows an alarm."""
        if isinstance(resume_from_checkpoint, bool):  # the trainer looks for one by itself
            return self._train(resume_from_checkpoint, **kwargs)
        checkpoint = Path(resume_from_checkpoint) if resume_from_checkpoint else None
        while True:
            entry = self._callback.entry = self._enter(checkpoint)
            path = str(entry.checkpoint) if entry.checkpoint else None
            try:
                return self._train(resume_from_checkpoint=path, **kwargs)
            except SavedForSkip as saved:
                checkpoint = saved.checkpoint
            except LossSpike:
                checkpoint = self._rewind()
                if checkpoint is None:
                    self._callback.examine_own_alarm()
                    raise
                self._reset_counters()
            self._clear_away()  # the exception and what its frames held are gone by now

    def _enter(self, checkpoint: Path | None) -> Entry:
        skip = self._callback.reporter.change.skip
        at = rungs.step_of(checkpoint)
        if skip is None or at >= skip.last:
            return Entry(checkpoint)
        if self._callback.can_rewind and (at < skip.first - 1 or checkpoint is None):
            return Entry(checkpoint, leave_at=skip.first - 1)
        if checkpoint is None:
            return Entry()  # nothing to copy: the window is trained
        planned = self._trainer.args.max_steps
        last = min(skip.last, planned) if planned > 0 else skip.last
        doctored = self._callback.reporter.run_dir.path / DOCTORED
        if self._callback.reporter.writes:
            rungs.doctor(checkpoint, doctored, step=last, keep=at > 0)
        ranks.any_rank(self._trainer, False)
        return Entry(doctored, skipped=rungs.Skip(at + 1, last))

    def _rewind(self) -> Path | None:
        """Wait for the decision, take the coming attempt's side, return where it starts."""
        decision = self._decision()
        if decision.attempt is None or decision.checkpoint is None:
            return None
        old = self._callback.reporter
        reporter = Reporter(old.run_dir, decision.attempt, writes=old.writes)
        self._callback.turn_to(reporter)
        if reporter.writes:
            print(f"=== attempt {reporter.attempt} ===", flush=True)
        reporter.rewound(seq=decision.seq, step=rungs.step_of(decision.checkpoint))
        self._callback.arm()
        return decision.checkpoint

    def _decision(self) -> Decision:
        deadline = self._clock() + self._callback.patience
        while True:
            decision = ranks.from_first(self._trainer, self._look(deadline))
            if decision is not None:
                return decision
            self._sleep(LOOK_EVERY)

    def _look(self, deadline: float) -> Decision | None:
        """Rank 0's view: a decision, or None while there is none."""
        if not self._callback.reporter.writes:
            return None
        if self._clock() >= deadline:
            return Decision()
        command = self._callback.commands.take(at_once=True)
        if command is None:
            return None
        wants_rewind = command.get("cmd") == "rewind"
        decision = self._understood(command) if wants_rewind else None
        if decision is None:
            self._callback.answer(command, done=not wants_rewind)
        return decision or Decision()

    def _understood(self, command: dict[str, Any]) -> Decision | None:
        """A new process must do it where attempt.json or the checkpoint is not what was said."""
        attempt = read_json(self._callback.reporter.run_dir.attempt_file)
        checkpoint = Path(str(command.get("checkpoint")))
        if attempt is None or attempt["attempt"] != command.get("attempt"):
            return None
        if not (checkpoint / rungs.STATE_FILE).is_file() or not rungs.has_optimizer(checkpoint):
            return None
        return Decision(command["seq"], checkpoint, attempt)

    def _clear_away(self) -> None:
        """What the pass that was left would do to the next one."""
        self._trainer.args.eval_on_start = False
        hook = getattr(self._trainer, "neftune_hook_handle", None)
        if hook is not None:
            hook.remove()  # each pass adds one, and only the end of a pass takes it off
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _reset_counters(self) -> None:
        for callback in self._trainer.callback_handler.callbacks:
            for name in _COUNTERS:
                if hasattr(callback, name):
                    setattr(callback, name, 0)
