"""The trainer's metrics in W&B, so that the attempts of a run can be told apart.

W&B drops rows whose `step` argument lies before what was logged, which after a rollback would be
all of them up to the old maximum. transformers' callback passes none: its rows are in the order in
which they were made, and the trainer's step is a metric, the axis of all others. So nothing is
dropped; but in one chart the branches lie over each other. Therefore each row also carries
`attempt`, and its main numbers once more as `attempt_2/loss`, `attempt_2/grad_norm`, … over
`attempt_2/step`: a line of its own for each attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from axolotl.utils.callbacks import SaveAxolotlConfigtoWandBCallback
from transformers import Trainer, TrainerControl, TrainerState, TrainingArguments
from transformers.integrations import WandbCallback

from pod.rundir import RunDir, replace_text
from runner.secrets import scrub

TOLD_APART = ("loss", "eval_loss", "grad_norm", "learning_rate")


class AttemptsCallback(WandbCallback):  # type: ignore[misc]  # transformers ships no types
    """transformers' own callback, whose rows also say which attempt they are of."""

    def __init__(self, attempt: Callable[[], int]) -> None:
        super().__init__()
        self._attempt = attempt
        self._axes: set[str] = set()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Log one row: what transformers makes of it, and ours."""
        if state.is_world_process_zero and logs:
            own = attempt_row(self._attempt(), state.global_step, logs)
            for name in sorted(own.keys() - self._axes - {"attempt"}):
                self._axes.add(name)
                self._wandb.define_metric(name, step_metric=f"attempt_{self._attempt()}/step")
            self._wandb.log(own, commit=False)  # the next call completes the row
        super().on_log(args, state, control, model=model, logs=logs, **kwargs)


def attempt_row(attempt: int, step: int, logs: Mapping[str, Any]) -> dict[str, Any]:
    """What a row of the training log says of its attempt."""
    prefix = f"attempt_{attempt}/"
    numbers = {prefix + name: logs[name] for name in TOLD_APART if name in logs}
    return {"attempt": attempt, **({prefix + "step": step, **numbers} if numbers else {})}


def tell_attempts_apart(trainer: Trainer, attempt: Callable[[], int]) -> None:
    """Put our callback in the place of transformers' own."""
    callbacks = trainer.callback_handler.callbacks
    for n, callback in enumerate(callbacks):
        if type(callback) is WandbCallback:
            callbacks[n] = AttemptsCallback(attempt)


def keep_secrets_out_of_config(trainer: Trainer, run_dir: RunDir) -> None:
    """axolotl uploads the file that it was given: a copy without secrets, where there are any."""
    for callback in trainer.callback_handler.callbacks:
        if not isinstance(callback, SaveAxolotlConfigtoWandBCallback):
            continue
        text = Path(callback.axolotl_config_path).read_text("utf-8")
        if scrub(text) != text:
            clean = run_dir.path / "axolotl.scrubbed.yml"
            replace_text(clean, scrub(text))
            callback.axolotl_config_path = str(clean)
