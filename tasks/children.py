"""Starting a step on the pod and following it to its end.

`run_deployment` never raises for a failed child and waits for ever by default, so the state is
always looked at and each wait has a limit. The idempotency key gives the same child back, finished
or not; one whose follower died is set going again under its old id.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, cast
from uuid import UUID

from prefect.client.schemas.objects import FlowRun, State
from prefect.deployments import run_deployment
from prefect.states import Cancelling, Scheduled

from blocks.logs import log
from runner.errors import TrainingFailed
from tasks.api import api, write
from tasks.standing import tag

# A worker proposes Crashed twice; a Scheduled set before the second one is overwritten.
CRASH_SETTLES = 4.0
MOST_REVIVALS = 5
PICK_UP_LIMIT = 600.0


def start_child(run: str, step: str, attempt: int, parameters: Mapping[str, Any]) -> FlowRun:
    """The child of this run for (step, attempt): found or created, on the run's own queue."""
    started = write(
        partial(
            run_deployment,
            f"{step}/pod",
            parameters=dict(parameters),
            flow_run_name=f"{step}-{attempt}",
            idempotency_key=f"{run}:{step}:{attempt}",
            work_queue_name=f"axr-{run}",
            tags=[tag(run)],
            timeout=0,
        )
    )
    return cast(FlowRun, started)  # a coroutine only where an event loop runs


def follow(
    child: FlowRun,
    look: Callable[[], None],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> State[Any]:
    """Wait until the child has ended and return its state; `look` is called at each turn and may
    raise.

    A crashed child (its process died, not its work) is scheduled again, at most MOST_REVIVALS
    times. TrainingFailed when no worker picks it up within PICK_UP_LIMIT seconds.
    """
    began, waiting_since = clock(), clock()
    while True:
        state = _state(child.id)
        if state.is_crashed():
            _set_going_again(child, state)
        elif state.is_final():
            return state
        if not (state.is_scheduled() or state.is_pending()):
            waiting_since = clock()
        if clock() - waiting_since > PICK_UP_LIMIT:
            raise TrainingFailed(
                "crash", f"no worker on the pod took {child.name} within {PICK_UP_LIMIT:.0f} s"
            )
        look()
        sleep(_pace(clock() - began))


def cancel_child(
    child: FlowRun, *, wait: float, sleep: Callable[[float], None] = time.sleep
) -> State[Any]:
    """Ask a living child to stop (it lets the trainer save) and wait up to `wait` seconds for its
    end.
    """
    prefect = api()
    write(lambda: prefect.set_flow_run_state(child.id, Cancelling(), force=True))
    deadline = time.monotonic() + wait
    while not (state := _state(child.id)).is_final() and time.monotonic() < deadline:
        sleep(0.25)
    return state


def _state(child_id: UUID) -> State[Any]:
    prefect = api()
    state = prefect.read_flow_run(child_id).state
    assert state is not None, "a flow run always has a state on the server"
    return state


def _set_going_again(child: FlowRun, state: State[Any]) -> None:
    if (datetime.now(UTC) - state.timestamp).total_seconds() < CRASH_SETTLES:
        return
    prefect = api()
    times = prefect.read_flow_run(child.id).run_count
    if times > MOST_REVIVALS:
        raise TrainingFailed("crash", f"{child.name} crashed {times} times: {state.message}")
    log().warning("The follower of %s died; it is started again", child.name)
    again: State[Any] = Scheduled(message="its process died")
    write(lambda: prefect.set_flow_run_state(child.id, again, force=True))


def _pace(elapsed: float) -> float:
    """Seconds between two looks: quick at first, at most 5 s for long runs."""
    return min(5.0, 0.4 + elapsed / 120)
