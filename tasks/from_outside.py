"""Ending a run from outside of its parent: the sweep's way, when the parent can't or does not.

A living parent ends its run itself: the outcome is written down, the parent is told to stop, and
`revive` brings it back to do nothing but the end. A run without a parent that could be revived is
ended here, under the parent's own lock: so there are never two who end it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from blocks.clouds import is_rented
from blocks.logs import log
from runner.errors import ConfigError, Outcome
from runner.locks import LockHeld, hold, holder
from tasks.api import api, write
from tasks.ending import End, decided, finish
from tasks.losing import survives
from tasks.report import report
from tasks.run import open_order, open_run, parent_lock
from tasks.standing import attempts, children, pods_of, recall, remember
from tasks.teardown import stop_children, teardown

# A parent that was told to stop does so at its next line of Python.
STOPS_WITHIN = 120.0
SWEEP = "sweep"


def decide(run_id: str, outcome: Outcome, reason: str) -> None:
    """Decide the run's outcome in its parent's place; one that is decided stays as it is."""
    if decided(run_id):
        return
    log().warning("The run %s is ended as %s: %s", run_id, outcome, reason)
    remember(run_id, {"outcome": outcome, "reason": reason, "decided_by": SWEEP, "signalled": ""})
    press(run_id, recall(run_id))


def press(run_id: str, facts: Mapping[str, str], *, now: float | None = None) -> None:
    """Make the living parent of a run whose outcome was decided elsewhere stop and end it.

    SIGTERM once; SIGKILL after STOPS_WITHIN for a process that has not even begun to end the run.
    One that was started since is left alone: it does nothing else.
    """
    pid = holder(parent_lock(run_id))
    if pid is None:
        return
    told_pid, _, told_at = facts.get("signalled", "").partition(" ")
    moment = time.time() if now is None else now
    if not told_pid:
        remember(run_id, {"signalled": f"{pid} {moment:.0f}"})
        _signal(pid, signal.SIGTERM)
    elif int(told_pid) == pid and moment - float(told_at) > STOPS_WITHIN and _stands_still(facts):
        log().error("The parent %s of the run %s does not stop: it is killed", pid, run_id)
        _signal(pid, signal.SIGKILL)


def end_dead_run(run_id: str, end: End) -> bool:
    """End a run whose parent can't be revived: children cancelled, pods given back, report written,
    people told. False when its parent lives after all. TryAgain while a pod isn't confirmed gone.
    """
    try:
        with hold(parent_lock(run_id)):
            end = decided(run_id) or end
            only_copy = holds_only_copy(run_id)
            if only_copy:
                end = End(end.outcome, f"{end.reason}; {only_copy}", end.published)
            log().error("The run %s is ended by the sweep: %s", run_id, end.reason)
            stop_children(run_id)  # also on a pod that is kept: nobody follows them any more
            state = finish(
                open_run(run_id),
                end,
                teardown=leave_to_guard if only_copy else teardown.fn,
                report=report.fn,
            )
            write(lambda: api().set_flow_run_state(UUID(run_id), state, force=True))
    except LockHeld:
        return False
    return True


def complete_report(run_id: str) -> None:
    """Write the report of a run that has ended, once more: now its last pod is gone, and paid for.

    There is none yet when its pods could not be given back in time. Nobody is told twice.
    """
    end = decided(run_id)
    if end is not None:
        report.fn(open_run(run_id), end.outcome, end.reason, end.published)


def holds_only_copy(run_id: str) -> str | None:
    """What is said of a run whose pod holds the only copy of what it trained; None when it is safe.

    Local pods leave it on this machine; a store or a network volume has it; a hub has what was
    published.
    """
    facts = recall(run_id)
    alive = [
        pod_id
        for pod_id, bill in pods_of(facts).items()
        if not bill["terminated"] and is_rented(str(bill["cloud"]))
    ]
    if not alive or facts.get("published") or not _has_trained(run_id):
        return None
    try:
        if survives(open_order(run_id)):
            return None
    except ConfigError:  # without its task file nothing is known to be safe
        pass
    return f"its pod {alive[-1]} holds the only copy of what was trained and is left to its guard"


def leave_to_guard(run_id: str) -> None:
    """In place of a teardown: the trainer saves and stops, and the pod's guard, whose lease nobody
    renews any more, brings the model to safety before it ends the pod.
    """
    stop_children(run_id)
    remember(run_id, {"left_to_guard": "yes"})


def _has_trained(run_id: str) -> bool:
    done: list[Any] = [facts for facts in attempts(run_id) if facts.last_step]
    started = [c for c in children(run_id) if c.name.startswith("train-") and c.start_time]
    return bool(done or started)


def _stands_still(facts: Mapping[str, str]) -> bool:
    """Whether the process has not begun to end its run, which would have written its outcome."""
    return "outcome" not in facts or facts.get("decided_by") == SWEEP


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
