"""Set going again what died: parents on the control machine, followers on a pod.

Dead is who does not hold the lock of its run; see runner.locks. It runs before every worker start
and in the sweep. On a pod: `python -m deployments.revive --queue axr-<run>`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterName,
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
    WorkQueueFilter,
    WorkQueueFilterName,
)
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.states import Scheduled

from blocks.logs import log
from runner.locks import is_free
from tasks.api import api, write
from tasks.pod_run import follower_lock
from tasks.run import parent_lock
from tasks.standing import remember

# Seconds that a state must have lasted. A worker proposes Crashed twice, and a new process takes
# its lock a moment after it is Running; a worker that lives ends a cancelled run within 35 s.
SETTLED = 4.0
PATIENCE = {StateType.PENDING: 60.0, StateType.CANCELLING: 45.0}
MOST_RUNS = 20
# Their deployments: each holds the lock of its own run.
PARENTS = ["finetune", "dispatch"]


def revive_parents() -> list[str]:
    """Set every dead `finetune` and `dispatch` run going again, to go on or to end; their ids."""
    prefect = api()
    found = prefect.read_flow_runs(
        deployment_filter=DeploymentFilter(name=DeploymentFilterName(any_=PARENTS)),
        flow_run_filter=_unfinished(
            StateType.RUNNING, StateType.CRASHED, StateType.PENDING, StateType.CANCELLING
        ),
    )
    return _set_going(found, lambda run: parent_lock(str(run.id)))


def revive_followers(queue: str) -> list[str]:
    """Set every dead flow run of this pod's queue going again; crashed ones are the parent's to
    judge.
    """
    run = queue.removeprefix("axr-")
    prefect = api()
    found = prefect.read_flow_runs(
        work_queue_filter=WorkQueueFilter(name=WorkQueueFilterName(any_=[queue])),
        flow_run_filter=_unfinished(StateType.RUNNING, StateType.PENDING),
    )
    return _set_going(found, lambda child: follower_lock(run, str(child.id)))


def is_dead(flow_run: FlowRun, lock: Path, now: datetime) -> bool:
    """True when nobody lives who could bring this flow run to its end."""
    state = flow_run.state
    if state is None or flow_run.run_count > MOST_RUNS:
        return False
    age = (now - state.timestamp).total_seconds()
    return age > PATIENCE.get(state.type, SETTLED) and is_free(lock)


def _set_going(found: list[FlowRun], lock_of: Callable[[FlowRun], Path]) -> list[str]:
    dead = [run for run in found if is_dead(run, lock_of(run), datetime.now(UTC))]
    prefect = api()
    for run in dead:
        log().warning("Reviving %s (%s)", run.name, run.id)
        if run.state and run.state.is_cancelling():
            # Its outcome is decided: what is left to do is to end it.
            remember(str(run.id), {"outcome": "cancelled", "reason": "cancelled by the user"})
        again: State[Any] = Scheduled(message="revived: its process died")
        write(partial(prefect.set_flow_run_state, run.id, again, force=True))
    return [str(run.id) for run in dead]


def _unfinished(*types: StateType) -> FlowRunFilter:
    return FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=list(types))))


def main() -> None:
    """Revive the followers of one pod's queue, or without one the parents."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queue", default=os.environ.get("AXR_QUEUE"))
    queue = parser.parse_args().queue
    print("revived:", revive_followers(queue) if queue else revive_parents())


if __name__ == "__main__":
    main()
