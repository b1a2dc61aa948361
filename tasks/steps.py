"""The steps that run on the pod, seen from the parent: start the child, watch over it, take its
facts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from prefect import task
from prefect.client.schemas.objects import FlowRun, State

from blocks.cloud import Pod
from blocks.clouds import cloud
from blocks.logs import log
from runner.attempts import AttemptFacts
from runner.errors import KeyRefused, PodLost, TrainingFailed, TryAgain, outcome_of
from runner.ladder import NextAttempt
from tasks.children import follow, start_child
from tasks.limits import PUBLISHING_TAKES
from tasks.losing import give_up, give_up_model, is_on_another_pod
from tasks.monitor import Monitor
from tasks.provenance import provenance
from tasks.provision import find_pod, provision
from tasks.retrying import patiently
from tasks.run import Order, Run
from tasks.standing import attempts, pods_of, recall, remember
from tasks.stopping import SAVED_FIRST, save_first
from tasks.teardown import end_pod
from tasks.timing import timed
from tasks.wandb_story import tell_child, with_cost

MOST_LOST = 5  # pods that may be lost before a training has begun


@dataclass(frozen=True)
class Published:
    """The model is where it belongs; `repository` of the hub, None when none was asked for."""

    repository: str | None


@task(**patiently(times=8, factor=2))
def prepare(run: Run, order: Order, pod: Pod) -> Pod:
    """Put the run's files on the pod and run the user's entry script; the pod that has them.

    That is another one when this one was lost meanwhile: nothing that it did is missed.
    """
    for _ in range(MOST_LOST):
        try:
            _prepare(run, order, pod)
            return pod
        except PodLost as lost:
            log().warning("%s, while it was prepared; another one is taken", lost)
            end_pod(pod)
            pod = provision(run, order)
    raise TrainingFailed("preempted", f"{MOST_LOST} pods were lost while they were prepared")


@task(**patiently(times=8, factor=2))
def train(run: Run, order: Order, pod: Pod, plan: NextAttempt) -> AttemptFacts:
    """One attempt on the pod, monitored; its facts, however it ended."""
    parameters = {
        "run": run.id,
        "attempt": plan.n,
        "before": plan.before,
        "rung": plan.rung,
        "factors": plan.factors,
        "overrides": plan.overrides,
        "why": plan.why,
        "last": plan.last,
        "task_file": run.task_file,
    }
    child = start_child(run.id, "train", plan.n, parameters)
    try:
        if is_on_another_pod(child, pod):
            raise PodLost(f"the pod of attempt {plan.n} is gone")
        _follow(run, child, Monitor(run, order, pod))
    except PodLost as lost:
        return give_up(child, order, pod, plan, lost)
    except TrainingFailed as ended:
        if ended.outcome in SAVED_FIRST:
            save_first(run, ended.outcome)
        if not _has_completed(run, plan):  # while it was asked to stop
            raise
    return next(facts for facts in attempts(run.id) if facts.n == plan.n)


@task(**patiently(times=8, factor=2))
def publish(run: Run, order: Order, trained: AttemptFacts) -> Published | None:
    """Gather the final weights on the pod that trained them, and upload them. None when they went
    with it: that last attempt counts as preempted from then on.
    """
    pod = _find(run, order)
    try:
        if pod is None or trained.pod not in (None, pod.id):
            pod = None  # a new one that a parent has taken since is not the one that was lost
            raise PodLost("the pod is gone")
        state = _publish(run, order, pod)
    except PodLost as lost:
        give_up_model(run.id, order, pod, lost)
        return None
    _must_complete(state)
    return Published(state.message or None)


def _find(run: Run, order: Order) -> Pod | None:
    """The run's pod. A refused key shows nothing: the pod holds the only copy of the model."""
    try:
        return find_pod(run, [cloud(name) for name in order.clouds])
    except KeyRefused as refused:
        raise TryAgain(str(refused)) from refused


def _publish(run: Run, order: Order, pod: Pod) -> State[object]:
    parameters = {"run": run.id, "repository": order.hub_repository, "told": provenance(run)}
    child = start_child(run.id, "publish", _number(run), parameters)
    with timed(run.id, "publish"):
        return _follow(run, child, Monitor(run, order, pod, spare=PUBLISHING_TAKES))


def _prepare(run: Run, order: Order, pod: Pod) -> None:
    parameters = {"run": run.id, "task_file": run.task_file, "content": order.task.text}
    if commits := json.loads(recall(run.id).get("commits") or "{}"):
        parameters["commits"] = commits  # another pod trains on the very same model and data
    child = start_child(run.id, "prepare", _number(run), parameters)
    with timed(run.id, "prepare"):
        state = _follow(run, child, Monitor(run, order, pod))
    _must_complete(state)
    if commits := _commits(state):
        remember(run.id, {"commits": json.dumps(commits)})


def _follow(run: Run, child: FlowRun, monitor: Monitor) -> State[object]:
    """The child's end; its log goes to W&B, whatever the end is."""
    try:
        state = follow(child, with_cost(run.id, monitor))
    except (PodLost, TrainingFailed):
        tell_child(run.id, child)
        raise
    tell_child(run.id, child)
    return state


def _commits(state: State[object]) -> dict[str, str]:
    """Of the hub's repositories that were fetched there."""
    try:
        said = json.loads(state.message or "")
    except ValueError:
        return {}
    return said.get("commits") or {} if isinstance(said, dict) else {}


def _has_completed(run: Run, plan: NextAttempt) -> bool:
    return any(facts.n == plan.n and facts.outcome == "completed" for facts in attempts(run.id))


def _number(run: Run) -> int:
    """Of a step that is done once for each pod, and again for each time that somebody asked."""
    return run.generation + max(0, len(pods_of(recall(run.id))) - 1)


def _must_complete(state: State[object]) -> None:
    if state.is_cancelled():
        raise TrainingFailed("cancelled", "the step on the pod was cancelled")
    if not state.is_completed():
        raise TrainingFailed(outcome_of(state.name), _one_line(state))


def _one_line(state: State[object]) -> str:
    return (state.message or state.name or "no word from the pod").partition("\n")[0]
