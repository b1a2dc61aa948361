"""A pod that was taken away from a run: it goes on elsewhere, if its checkpoints survive."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from prefect.client.schemas.objects import FlowRun, State
from prefect.states import Failed

from blocks.cloud import Pod
from blocks.logs import log
from runner.attempts import AttemptFacts, to_message
from runner.errors import PodLost, TrainingFailed, state_name
from runner.ladder import NextAttempt
from tasks.api import api, write
from tasks.run import Order
from tasks.standing import PREFIX, attempts, children
from tasks.teardown import end_pod


def give_up(
    child: FlowRun, order: Order, pod: Pod, plan: NextAttempt, lost: PodLost
) -> AttemptFacts:
    """End what is left of the pod, then the attempt, as `preempted`: the next one gets a new pod.

    In this order: a pod that comes back by itself would be a second one. TrainingFailed when the
    next pod could not know what this one has trained.
    """
    _let_go(order, pod, lost)
    facts = AttemptFacts(
        plan.n,
        "preempted",
        str(lost),
        from_checkpoint=plan.from_checkpoint,
        first_step=(plan.from_checkpoint or 0) + 1,
        rung=plan.rung,
        pod=pod.id,
        cloud=pod.cloud,
    )
    _end(child, facts)
    return facts


def give_up_model(run_id: str, order: Order, pod: Pod | None, lost: PodLost) -> None:
    """As `give_up`, for a pod (None: gone already) that had trained the model and not yet published
    it: its last attempt becomes `preempted`, so the next one trains the end of it again.
    """
    _let_go(order, pod, lost)
    steps = children(run_id)
    for child in steps:
        # Nobody may publish from the next pod before it has a model.
        if child.name.startswith("publish-") and child.state and not child.state.is_final():
            _set(child, Failed(name=state_name("preempted"), message=str(lost)))
    done = attempts(run_id)[-1]
    trained = [child for child in steps if child.name == f"train-{done.n}"][-1]
    why = f"{lost}, before the model was published"
    _end(trained, replace(done, outcome="preempted", reason=why))


def _let_go(order: Order, pod: Pod | None, lost: PodLost) -> None:
    if not survives(order):
        raise TrainingFailed(
            "preempted",
            f"{lost}; without checkpoint_store or network_volume its work went with it",
        ) from lost
    log().warning("%s; the run goes on elsewhere", lost)
    if pod is not None:
        end_pod(pod)


def _end(child: FlowRun, facts: AttemptFacts) -> None:
    _set(child, Failed(name=state_name(facts.outcome), message=to_message(facts)))


def _set(child: FlowRun, state: State[Any]) -> None:
    write(lambda: api().set_flow_run_state(child.id, state, force=True))


def survives(order: Order) -> bool:
    """Whether the next pod finds the checkpoints of this one."""
    settings = order.settings
    stored = settings.checkpoint_store not in (None, "volume")
    return stored or settings.network_volume is not None


def is_on_another_pod(child: FlowRun, pod: Pod) -> bool:
    """Whether this flow run was begun on a pod that is not the run's any more."""
    began_on = child.labels.get(f"{PREFIX}pod")
    # A crash says nothing of the pod: the follower died with it, or it was found gone.
    over = child.state is not None and child.state.is_final() and not child.state.is_crashed()
    return began_on not in (None, pod.id) and not over
