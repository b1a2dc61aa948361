"""The ladder's decision after an attempt, or the end of the run."""

from __future__ import annotations

from collections.abc import Sequence

from runner.attempts import AttemptFacts
from runner.batch import batch_of
from runner.errors import TrainingFailed
from runner.home import home
from runner.ladder import RESUMABLE, NextAttempt, Stop, next_attempt
from tasks.run import Order, Run


def decide(run: Run, order: Order, done: Sequence[AttemptFacts]) -> NextAttempt:
    """What the next attempt does. TrainingFailed when there is none: with the reason, and where
    the last healthy checkpoint lies.
    """
    plan = next_attempt(
        done,
        order.settings.resume,
        batch=batch_of(order.task.axolotl),
        asked_after=run.asked_after,
    )
    if isinstance(plan, Stop):
        raise TrainingFailed(done[-1].outcome, _reason(run, done[-1], plan))
    return plan


def _reason(run: Run, last: AttemptFacts, stop: Stop) -> str:
    if stop.kept:
        where = home().relative(run.folder / stop.kept)
        return f"{stop.reason}; the last healthy checkpoint is {where}"
    if last.outcome in RESUMABLE and last.first_step:
        return f"{stop.reason}; there is no healthy checkpoint"
    return stop.reason
