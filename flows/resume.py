"""One attempt to come back: from the last healthy checkpoint, with one rung of the ladder."""

from __future__ import annotations

from prefect import flow

from runner.attempts import AttemptFacts
from runner.ladder import NextAttempt
from tasks.notify import tell
from tasks.provision import provision
from tasks.run import open_order, open_run
from tasks.steps import prepare, train


@flow(name="resume", flow_run_name="resume-{attempt}: {what}", persist_result=False)
def resume(run: str, attempt: int, what: str, why: str, plan: NextAttempt) -> AttemptFacts:
    """Train again from a checkpoint before the trouble.

    Args:
        run: id of the run.
        attempt: number of the attempt.
        what: where it starts and what it changes, in words.
        why: the trouble that it comes after.
        plan: the same for the trainer.
    """
    this, order = open_run(run), open_order(run)
    pod = provision(this, order)
    pod = prepare(this, order, pod)  # done long ago, unless the pod is a new one
    tell(this, order, "resumed", f"attempt {attempt} {what}", attempt=attempt, after=why)
    return train(this, order, pod, plan)
