"""What the sweep does, and its switch: on before a pod is created, off when none is left."""

from __future__ import annotations

from functools import partial
from uuid import UUID

from prefect.exceptions import ObjectNotFound

from blocks.cloud import Pod
from blocks.clouds import all_clouds
from blocks.logs import log
from tasks.api import api, write
from tasks.standing import recall
from tasks.teardown import end_pod

DEPLOYMENT = "sweep/sweep"


def list_pods() -> list[Pod]:
    """All pods of ours on all clouds; raises when one cloud can't be listed: that is not an empty
    list.
    """
    return [pod for cloud in all_clouds() for pod in cloud.list_ours()]


def give_back_ownerless(pods: list[Pod]) -> list[Pod]:
    """End the pods whose run has ended or is unknown to this server; those kept on purpose stay."""
    ownerless = [pod for pod in pods if not _has_owner(pod)]
    for pod in ownerless:
        log().warning("Pod %s on %s has no living run", pod.id, pod.cloud)
        end_pod(pod)
    return ownerless


def switch_sweep_on() -> None:
    """Make the sweep run each minute."""
    _set_active(True)


def switch_sweep_off() -> None:
    """Stop the sweep's schedule."""
    _set_active(False)


def _has_owner(pod: Pod) -> bool:
    prefect = api()
    try:
        state = prefect.read_flow_run(UUID(pod.run)).state
    except ObjectNotFound:
        return False
    if state is None or not state.is_final() or state.is_crashed():
        return True  # a crashed parent is revived and wants its pod
    return recall(pod.run).get("keep_pod") == "yes"


def _set_active(active: bool) -> None:
    prefect = api()
    deployment = prefect.read_deployment_by_name(DEPLOYMENT)
    for schedule in deployment.schedules:
        if schedule.active != active:
            write(
                partial(
                    prefect.update_deployment_schedule, deployment.id, schedule.id, active=active
                )
            )
