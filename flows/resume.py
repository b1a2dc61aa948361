"""One attempt to come back: from the last healthy checkpoint, with one rung of the ladder."""

from __future__ import annotations

from prefect import flow

from runner.attempts import AttemptFacts
from runner.ladder import NextAttempt
from runner.report import Rung
from tasks.notify import tell
from tasks.provision import provision
from tasks.run import open_order, open_run
from tasks.steps import train


@flow(name="resume", flow_run_name="resume-{attempt}", persist_result=False)
def resume(
    run: str,
    attempt: int,
    why: str,
    from_checkpoint: int | None,
    before: int | None,
    rung: Rung | None,
) -> AttemptFacts:
    """Train again from a checkpoint before the trouble; `before` is the step where the trouble
    began.
    """
    this, order = open_run(run), open_order(run)
    pod = provision(this, order)
    tell(this, order, "resumed", why, attempt=attempt, from_checkpoint=from_checkpoint)
    return train(this, order, pod, NextAttempt(attempt, from_checkpoint, before, rung))
