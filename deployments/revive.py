"""Set going again what died: parents on the control machine, followers on a pod.

Dead is who does not hold the lock of its run; see runner.locks. It runs before every worker start,
every few seconds in the keeper, and in the sweep, which ends what can't be revived. On a pod:
`python -m deployments.revive --queue axr-<run>`.
"""

from __future__ import annotations

import argparse
import os
import time
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
from runner.home import home
from runner.locks import LockHeld, hold, is_free
from runner.revival import LABEL, MOST_RUNS, Death, judge, read_death
from tasks.api import api, write
from tasks.from_outside import SWEEP, press
from tasks.pod_run import follower_lock
from tasks.run import parent_lock
from tasks.standing import facts_of, remember
from tasks.sweep_switch import switch_sweep_on

# Seconds that a state must have lasted. A worker proposes Crashed twice, and a new process takes
# its lock a moment after it is Running; a worker that lives ends a cancelled run within 35 s.
SETTLED = 4.0
PATIENCE = {StateType.PENDING: 60.0, StateType.CANCELLING: 45.0}
BEGUN = (StateType.RUNNING, StateType.CRASHED, StateType.PENDING, StateType.CANCELLING)


def revive_parents() -> list[str]:
    """Set the dead `finetune` and `dispatch` runs going again, to go on or to be ended; the ids of
    those. A living one whose outcome was decided elsewhere is told to end.

    One at a time looks: two would count each death twice.
    """
    try:
        with hold(home().locks / "revive.lock"):
            now = datetime.now(UTC)
            return [*_revive_parents(now), *_revive_dispatches(now)]
    except LockHeld:
        return []


def parents(*types: StateType) -> list[FlowRun]:
    """The `finetune` runs in a state of these types."""
    return api().read_flow_runs(
        deployment_filter=DeploymentFilter(name=DeploymentFilterName(any_=["finetune"])),
        flow_run_filter=_in_state(*types),
    )


def unfinished_parents() -> list[FlowRun]:
    """The `finetune` runs that have not ended."""
    return parents(*BEGUN, StateType.SCHEDULED)


def revive_followers(queue: str) -> list[str]:
    """Set every dead flow run of this pod's queue going again; crashed ones are the parent's to
    judge.
    """
    run = queue.removeprefix("axr-")
    found = api().read_flow_runs(
        work_queue_filter=WorkQueueFilter(name=WorkQueueFilterName(any_=[queue])),
        flow_run_filter=_in_state(StateType.RUNNING, StateType.PENDING),
    )
    now = datetime.now(UTC)
    dead = [
        child
        for child in found
        if child.run_count <= MOST_RUNS and is_dead(child, follower_lock(run, str(child.id)), now)
    ]
    for child in dead:
        _set_going(child)
    return [str(child.id) for child in dead]


def is_dead(flow_run: FlowRun, lock: Path, now: datetime) -> bool:
    """True when nobody lives who could bring this flow run to its end."""
    return _lasts(flow_run, now) and is_free(lock)


def _revive_parents(now: datetime) -> list[str]:
    revived = []
    for run in parents(*BEGUN):
        lock = parent_lock(str(run.id))
        if not is_free(lock):
            _see_alive(run, now)
        elif is_dead(run, lock, now) and _deal_with_dead(run, now.timestamp()):
            revived.append(str(run.id))
    return revived


def _revive_dispatches(now: datetime) -> list[str]:
    """They own no pod: what died is only done again, and finds the runs that it had started."""
    found = api().read_flow_runs(
        deployment_filter=DeploymentFilter(name=DeploymentFilterName(any_=["dispatch"])),
        flow_run_filter=_in_state(*BEGUN),
    )
    dead = [
        run
        for run in found
        if run.run_count <= MOST_RUNS and is_dead(run, parent_lock(str(run.id)), now)
    ]
    for run in dead:
        if run.state and run.state.is_cancelling():
            remember(str(run.id), {"outcome": "cancelled", "reason": "cancelled by the user"})
        _set_going(run)
    return [str(run.id) for run in dead]


def _deal_with_dead(run: FlowRun, now: float) -> bool:
    """Revive it unless that was tried in vain; True when it was set going."""
    known = read_death(facts_of(run).get(LABEL))
    death = known or Death(now)
    verdict = judge(death, run.run_count, now)
    if verdict != "revive":
        if known is None:
            remember(str(run.id), {LABEL: death.to_text()})
        if verdict == "give up":
            switch_sweep_on()  # it may have died before it had a pod
        return False
    remember(str(run.id), {LABEL: death.again(now).to_text()})
    if run.state and run.state.is_cancelling():
        # Its outcome is decided: what is left to do is to end it.
        remember(str(run.id), {"outcome": "cancelled", "reason": "cancelled by the user"})
    _set_going(run)
    return True


def _see_alive(run: FlowRun, now: datetime) -> None:
    """It lives: its deaths are forgotten. A cancel or a verdict that did not reach it is delivered:
    a worker does not know the runs of the worker before it.
    """
    facts = facts_of(run)
    if LABEL in facts:
        remember(str(run.id), {LABEL: ""})
    is_cancelled = run.state is not None and run.state.is_cancelling() and _lasts(run, now)
    if is_cancelled or facts.get("decided_by") == SWEEP:
        press(str(run.id), facts, now=time.time())


def _lasts(flow_run: FlowRun, now: datetime) -> bool:
    """Whether its state has had the time that it may take to be true."""
    state = flow_run.state
    if state is None:
        return False
    return (now - state.timestamp).total_seconds() > PATIENCE.get(state.type, SETTLED)


def _set_going(run: FlowRun) -> None:
    log().warning("Reviving %s (%s)", run.name, run.id)
    again: State[Any] = Scheduled(message="revived: its process died")
    write(partial(api().set_flow_run_state, run.id, again, force=True))


def _in_state(*types: StateType) -> FlowRunFilter:
    return FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=list(types))))


def main() -> None:
    """Revive the followers of one pod's queue, or without one the parents."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queue", default=os.environ.get("AXR_QUEUE"))
    queue = parser.parse_args().queue
    print("revived:", revive_followers(queue) if queue else revive_parents())


if __name__ == "__main__":
    main()
