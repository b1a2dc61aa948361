"""The flow runs of pods that are gone: nobody is left to say how they ended.

A living parent sees to its own children. For the others the server would say Running for ever; they
become Crashed once the pod's absence is confirmed: its cloud gave a whole list that does not hold
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterName,
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.states import Crashed

from blocks.logs import log
from runner.locks import is_free
from tasks.api import api, write
from tasks.run import parent_lock
from tasks.sighting import Listing
from tasks.standing import PREFIX, pods_of, recall

# Clouds may take half a minute to list a new pod.
LISTED_WITHIN = timedelta(seconds=90)
TAG = "run:"


def crash_lost_children(listing: Listing, now: datetime | None = None) -> list[str]:
    """Set the orphaned flow runs of lost pods to Crashed; the ids of those."""
    moment = now or datetime.now(UTC)
    lost: list[str] = []
    for child in _working():
        run_id = run_of(child)
        if run_id is None or not is_free(parent_lock(run_id)):
            continue
        pod = gone_pod(child, pods_of(recall(run_id)), listing, moment)
        if pod is None:
            continue
        log().warning("%s of the run %s was on the pod %s, which is gone", child.name, run_id, pod)
        crashed: State[Any] = Crashed(
            message=f"its pod {pod} is gone: its cloud no longer lists it"
        )
        write(partial(api().set_flow_run_state, child.id, crashed, force=True))
        lost.append(str(child.id))
    return lost


def gone_pod(
    child: FlowRun, bills: Mapping[str, Mapping[str, Any]], listing: Listing, now: datetime
) -> str | None:
    """The pod that this flow run was on, when it is confirmed gone; None when it may be there.

    A flow run that does not say where it was may have been on any pod of its run: all of them must
    be gone.
    """
    began_on = child.labels.get(f"{PREFIX}pod")
    pods = [str(began_on)] if began_on else list(bills)
    if not pods or not all(_is_gone(pod, bills.get(pod), listing, now) for pod in pods):
        return None
    return pods[-1]


def run_of(child: FlowRun) -> str | None:
    """The run that a flow run on a pod belongs to, by its tag."""
    return next((tag.removeprefix(TAG) for tag in child.tags if tag.startswith(TAG)), None)


def _is_gone(pod: str, bill: Mapping[str, Any] | None, listing: Listing, now: datetime) -> bool:
    if bill is None or str(bill["cloud"]) not in listing.seen:
        return False  # where it was is not known, or can't be seen now
    if now - datetime.fromisoformat(str(bill["created"])) < LISTED_WITHIN:
        return False
    return all(pod != listed.id for listed in listing.pods)


def _working() -> list[FlowRun]:
    states = [StateType.RUNNING, StateType.CANCELLING]
    return api().read_flow_runs(
        deployment_filter=DeploymentFilter(name=DeploymentFilterName(any_=["pod"])),
        flow_run_filter=FlowRunFilter(
            state=FlowRunFilterState(type=FlowRunFilterStateType(any_=states))
        ),
    )
