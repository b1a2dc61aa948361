"""The life of one run: check, provision, prepare, train, resume after a spike, publish; then the
end.
"""

from __future__ import annotations

from typing import Any

from prefect import Flow, flow
from prefect.client.schemas.objects import FlowRun, State
from prefect.runtime import flow_run

from flows.resume import resume
from runner.ladder import FIRST
from tasks.check import check
from tasks.deciding import decide
from tasks.ending import End, finish, to_its_end
from tasks.matrix import spread
from tasks.notify import tell
from tasks.provision import provision
from tasks.report import report
from tasks.run import Run, open_run
from tasks.standing import attempts
from tasks.steps import prepare, publish, train
from tasks.teardown import teardown
from tasks.wandb_story import track


def finish_cancelled(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Finish a teardown that Prefect's 30 seconds cut short or a killed parent never began."""
    finish(
        open_run(str(flow_run.id)),
        End("cancelled", "cancelled by the user"),
        teardown=teardown.fn,
        report=report.fn,
    )


@flow(
    name="finetune",
    flow_run_name="{task_file}",
    on_cancellation=[finish_cancelled],
    persist_result=False,
)
def finetune(
    task_file: str,
    repository: str | None = None,
    commit: str | None = None,
    content: str | None = None,
    cloud: str | None = None,
) -> State[Any]:
    """Train one axolotl task file on a pod and give the pod back, whatever happens.

    Args:
        task_file: path of the YAML in the repository.
        repository: where the file was committed, for the model card and the report.
        commit: the commit that it was read at.
        content: the file's text; without it the file is read on the control machine.
        cloud: overrides `runner.cloud` of the task file.
    """
    return to_its_end(str(flow_run.id), steps)


def steps(run: Run) -> str | None:
    """The steps of a run, in order; each looks first, so a revived parent repeats nothing."""
    order = check(run)
    spread(run, order)  # a matrix ends here, in a run for each combination
    track(run, order)
    pod = provision(run, order)
    tell(run, order, "started", f"on {pod.cloud} at ${pod.price_per_hour:.2f} per hour")
    pod = prepare(run, order, pod)
    done = attempts(run.id) or [train(run, order, pod, FIRST)]
    while True:
        if done[-1].outcome == "completed":
            if model := publish(run, order, done[-1]):
                return model.repository
            done = attempts(run.id)  # the pod went, and the model with it
        plan = decide(run, order, done)
        tell(run, order, "spike", done[-1].reason, attempt=done[-1].n)
        done.append(resume(run.id, plan.n, plan.what, plan.why, plan))
