"""The axolotl plugin that makes a trainer report, guards it and lets it be steered.

In the task file's axolotl part: `plugins: [pod.plugin.RunnerPlugin]`; in the environment:
AXR_RUN_DIR, whose attempt.json names the attempt. Without them it warns and does nothing.

What it writes to events.jsonl (rank 0 only):
    armed     {planned_steps, logging_steps, save_steps}  once, before the first step
    step      {loss, grad_norm, lr, epoch}                one for each entry of the training log
    save      {checkpoint, health}                        the ledger entry follows from a thread
    eval      {eval_loss, …}
    alarm     {onset_step, alarm: jump|drift|nonfinite|collapse, reason, waiting}
    rewound   {seq, from_checkpoint, rung}                a new attempt in this process (pod.loop)
    postmortem {of_attempt, first, last, lr, grad_norm, rows: [{step, index, loss, text, tokens}]}
    decision  {seq, cmd, done}                            the answer to control.json
    decision  {cmd: the rung's kind, done, factors, moments, learning_rate, weight_decay, first,
              last}   what the rung did (pod.rungs): the values of the optimizer's groups, and the
              steps that were skipped; no seq
    error     {error, message, cuda_oom}                  any other exception, wherever it came up
    end       {planned_steps, finished, stopped, early, files, final_loss}   after the final save

Besides events: pulse.json (pod.pulse), evals/ (pod.eval_log), and the stacks of all threads in the
log on SIGUSR1, on each rank. The user's own callbacks (pod.user_callbacks) are loaded here because
axolotl passes over a plugin that can't be imported.

LossSpike is raised from on_log, where the bad step's checkpoint is not written yet. What one rank
alone has seen is an alarm on all, so that they raise at the same step. Without a rewind the process
exits non-zero and saves no model.

Not covered: an error on a rank other than 0 is no event (its traceback is in the log).
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from axolotl.integrations.base import BasePlugin
from axolotl.utils.logging import get_logger
from transformers import Trainer

from pod import user_callbacks
from pod.callback import AllStepsTrained, LossSpike, RunnerCallback
from pod.eval_log import EvalLog
from pod.integrity import weight_files
from pod.loop import TrainingLoop, why_not_rewind
from pod.pulse import Heart
from pod.reporter import Reporter
from pod.rundir import RunDir, read_json
from pod.user_callbacks import UserCallbackError, UserCallbacks
from pod.wandb_join import Joined, join

LOG = get_logger(__name__)
STDERR = 2  # by number: libraries put other objects in sys.stderr's place


class RunnerPlugin(BasePlugin):  # type: ignore[misc]  # axolotl ships no types
    """Report, guard, steer: see the module's docstring for the contract."""

    def __init__(self) -> None:
        super().__init__()
        self.reporter = _reporter()
        self.callback: RunnerCallback | None = None
        self.heart: Heart | None = None
        self.found: user_callbacks.Found = {}
        self.users = UserCallbacks({})
        self.wandb: Joined | None = None
        self._trainer_failed: BaseException | None = None
        if self.reporter is None:
            LOG.warning("AXR_RUN_DIR names no attempt: this training is neither seen nor guarded")
        else:
            self._report_uncaught_errors()
            # pod.stacks asks for it where the system forbids looking in from outside.
            faulthandler.register(signal.SIGUSR1, file=STDERR, all_threads=True)
            self.heart = Heart(self.reporter.run_dir, writes=self.reporter.writes)
            self.heart.enter("loading", self.reporter.from_step)
            self.found = user_callbacks.find(self.reporter.callbacks)

    def register(self, cfg: Any) -> None:
        """Join the run in W&B: the data and the model are loaded after this."""
        if self.reporter is not None and self.reporter.writes and self.wandb is None:
            self.wandb = join(self.reporter.run_dir, self.reporter.attempt)

    def post_trainer_create(self, cfg: Any, trainer: Trainer) -> None:
        """Arm the trainer: callback, true losses, right data order on resume."""
        if self.reporter is None or self.heart is None:
            return
        self.reporter.writes = self.heart.writes = trainer.is_world_process_zero()
        # By default the trainer logs a NaN loss as 0.0, which looks like success.
        trainer.args.logging_nan_inf_filter = False
        _let_skipped_batches_keep_their_order()
        obstacle = why_not_rewind(trainer, cfg)
        if obstacle is not None:
            LOG.info("After an alarm the process ends, and a new one resumes (%s)", obstacle)
        self.callback = RunnerCallback(
            self.reporter, trainer, can_rewind=obstacle is None, heart=self.heart
        )
        self.callback.show_phases()
        trainer.add_callback(self.callback)
        self.users = user_callbacks.add(self.found, trainer)
        if self.reporter.log_eval:
            EvalLog(trainer, self._reporter_now).attach()
        if self.wandb is not None:
            self._show_attempts(trainer, self.callback)
        trainer.train = self._reporting_errors(TrainingLoop(trainer.train, self.callback))
        self.callback.arm()

    def post_train_unload(self, cfg: Any) -> None:
        """Write `end`: only here is the final model on disk."""
        if self.callback is None:
            return
        self.callback.reporter.end(
            step=self.callback.step,
            planned_steps=self.callback.planned_steps,
            stopped=self.callback.stopped,
            early=self.callback.stopped_early,
            files=weight_files(Path(cfg.output_dir)),
            final_loss=self.callback.loss,
        )
        if self.wandb is not None:
            self.wandb.leave(0)

    def _show_attempts(self, trainer: Trainer, callback: RunnerCallback) -> None:
        from pod.wandb_attempts import keep_secrets_out_of_config, tell_attempts_apart

        tell_attempts_apart(trainer, lambda: callback.reporter.attempt)
        keep_secrets_out_of_config(trainer, callback.reporter.run_dir)

    def _reporting_errors(self, train: Callable[..., Any]) -> Callable[..., Any]:
        def reporting_train(*args: Any, **kwargs: Any) -> Any:
            try:
                return train(*args, **kwargs)
            except AllStepsTrained:
                LOG.info("All planned steps are in the checkpoint: only the final model is written")
                if self.heart is not None:
                    self.heart.enter("saving")
                return None
            except Exception as error:
                self._report(error)
                raise
            finally:
                if self.callback is not None:
                    self.callback.close()

        return reporting_train

    def _report_uncaught_errors(self) -> None:
        """Errors before and after the training (model, data, final save) reach only this hook."""
        before = sys.excepthook

        def report(
            kind: type[BaseException], error: BaseException, trace: TracebackType | None
        ) -> None:
            if isinstance(error, Exception):
                self._report(error)
            before(kind, error, trace)
            if self.wandb is not None:
                self.wandb.leave(1)

        sys.excepthook = report

    def _report(self, error: Exception) -> None:
        if self.reporter is None or isinstance(error, LossSpike) or error is self._trainer_failed:
            return
        self._trainer_failed = error
        hook = self.users.hook_of(error)
        self._reporter_now().error(
            error=type(error).__name__,
            message=(f"runner.callbacks: {hook}: " if hook else "") + str(error)[:2000],
            cuda_oom=type(error).__name__ == "OutOfMemoryError"
            or "CUDA out of memory" in str(error),
            step=self.callback.step if self.callback is not None else 0,
            # All ranks fail alike, and the launcher ends rank 0 when another is the first.
            any_rank=isinstance(error, UserCallbackError),
        )

    def _reporter_now(self) -> Reporter:
        """The reporter of the attempt that runs."""
        reporter = self.callback.reporter if self.callback is not None else self.reporter
        assert reporter is not None, "asked only where there is one"
        return reporter


def _reporter() -> Reporter | None:
    folder = os.environ.get("AXR_RUN_DIR")
    if not folder:
        return None
    run_dir = RunDir(Path(folder))
    attempt = read_json(run_dir.attempt_file)
    if attempt is None:
        return None
    return Reporter(run_dir, attempt, writes=os.environ.get("RANK", "0") == "0")


def _let_skipped_batches_keep_their_order() -> None:
    """With sample packing a run resumed in the middle of an epoch would see another order.

    accelerate's SkipBatchSampler does not pass set_epoch on, so axolotl's packing keeps the
    batches it cached before the sampler was seeded (accelerate 1.13, axolotl 0.19).
    """
    from accelerate.data_loader import SkipBatchSampler

    def set_epoch(self: Any, epoch: int) -> None:
        inner = getattr(self.batch_sampler, "set_epoch", None)
        if inner is not None:
            inner(epoch)

    if not hasattr(SkipBatchSampler, "set_epoch"):
        SkipBatchSampler.set_epoch = set_epoch
