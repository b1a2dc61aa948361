"""Give the run's pods back: let the child save, end the pod, confirm that it is gone."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial

from prefect import task
from prefect.client.schemas.objects import FlowRun, State
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled

from blocks.cloud import Cloud, Pod
from blocks.clouds import all_clouds, cloud_of
from blocks.logs import log
from runner.errors import KeyRefused, TryAgain
from tasks.api import api, write
from tasks.children import cancel_child
from tasks.retrying import patiently
from tasks.standing import children, pods_of, recall, remember_pod
from tasks.timing import timed

# Inside Prefect's 30 s between a cancel and SIGKILL: the trainer's 20 s to save, and time to end
# the pod.
CHILD_STOPS_WITHIN = 22.0


@task(**patiently(times=8, factor=2))
def teardown(run_id: str) -> list[Pod]:
    """End every pod of the run; the pods that were there. TryAgain until their absence is
    confirmed.
    """
    with timed(run_id, "teardown"):
        return end_pods(run_id)


def end_pods(run_id: str) -> list[Pod]:
    """As `teardown`, for hooks and the sweep, which have no run context.

    A cloud that can't be seen keeps no pod on another one alive: what can be ended is ended first.
    """
    stop_children(run_id)
    return clear_away(run_id)


def clear_away(run_id: str) -> list[Pod]:
    """End the pods of a run whose children have had their time to stop, and what is left of it."""
    ended, unseen = _end_on_all_clouds(run_id)
    if unseen:
        raise TryAgain("; ".join(unseen))
    for child in _unfinished(run_id):  # its process went with the pod and can't say so itself
        ended_with_it: State[None] = Cancelled(message="its pod was ended")
        write(partial(api().set_flow_run_state, child.id, ended_with_it, force=True))
    _remove_queue(run_id)
    return ended


def stop_children(run_id: str) -> None:
    """Cancel what works on the run's pods: a trainer saves and stops."""
    for child in _unfinished(run_id):
        cancel_child(child, wait=CHILD_STOPS_WITHIN)


def end_pod(pod: Pod) -> None:
    """Terminate one pod and write down when it was confirmed gone."""
    try:
        cloud_of(pod).terminate(pod)
    except TryAgain:
        log().error(
            "Pod %s on %s is not confirmed gone ($%.2f per hour). "
            "Terminate it manually if this goes on.",
            pod.id,
            pod.cloud,
            pod.price_per_hour,
        )
        raise
    remember_pod(pod, terminated=datetime.now(UTC))
    log().info("Pod %s on %s is gone", pod.id, pod.cloud)


def _end_on_all_clouds(run_id: str) -> tuple[list[Pod], list[str]]:
    """The pods that were ended, and what keeps us from knowing that these were all."""
    clouds = all_clouds()
    ended: list[Pod] = []
    unseen = [
        f"no access to {bill['cloud']}, where the pod {pod_id} was rented"
        for pod_id, bill in pods_of(recall(run_id)).items()
        if not bill["terminated"] and bill["cloud"] not in [cloud.name for cloud in clouds]
    ]
    for cloud in clouds:
        try:
            for pod in _pods_on(cloud, run_id):
                end_pod(pod)
                ended.append(pod)
        except (
            TryAgain,
            KeyRefused,
        ) as unknown:  # a refused key shows nothing: not that it is gone
            unseen.append(f"{cloud.name}: {unknown}")
    return ended, unseen


def _pods_on(cloud: Cloud, run_id: str) -> list[Pod]:
    """Every pod of the run, also one that a create call made unseen."""
    return [pod for pod in cloud.list_ours() if pod.run == run_id]


def _unfinished(run_id: str) -> list[FlowRun]:
    return [child for child in children(run_id) if child.state and not child.state.is_final()]


def _remove_queue(run_id: str) -> None:
    """The run's own work queue (tasks.provision made it), which would pile up otherwise."""
    prefect = api()
    try:
        queue = prefect.read_work_queue_by_name(f"axr-{run_id}", work_pool_name="pods")
        write(lambda: prefect.delete_work_queue_by_id(queue.id))
    except ObjectNotFound:
        return
