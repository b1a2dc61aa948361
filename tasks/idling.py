"""A pod's idleness from one sweep to the next, kept in a label of its run; told once. So is what
looks like idleness and is none.
"""

from __future__ import annotations

from collections.abc import Mapping

from runner.idleness import Activity, Idle, idle_since
from runner.settings import RunnerSettings
from tasks.notify import deliver
from tasks.run import open_run
from tasks.standing import remember


def note_idleness(
    run_id: str, facts: Mapping[str, str], pod_id: str, what: Activity, now: float
) -> Idle | None:
    """Take one more look into account; what is known of the pod's idleness after it."""
    key = f"idle_since.{pod_id}"
    before = _read(facts.get(key))
    after = idle_since(before, what, now)
    if after:
        remember(run_id, {key: f"{after.since:.0f} {after.seen:.0f}"})
    elif before:
        # It works again: the next time that it is idle is told anew.
        remember(run_id, {key: "", _mark(pod_id): ""})
    return after


def tell_idle(
    run_id: str, pod_id: str, settings: RunnerSettings, minutes: float, table: str
) -> None:
    """Say that a pod has been idle for so many minutes, with the table of all pods; once."""
    deliver(
        open_run(run_id),
        settings.notify,
        "idle",
        f"the pod {pod_id} has been idle for {minutes:.0f} minutes; "
        f"it is ended after {settings.idle_minutes:g}",
        log=table,
        mark=_mark(pod_id),
    )


def tell_forwarding(
    run_id: str, pod_id: str, settings: RunnerSettings, minutes: float, step: int
) -> None:
    """Say that a resumed trainer passes over rows, instead of that its pod is idle; once."""
    deliver(
        open_run(run_id),
        settings.notify,
        "resumed",
        f"fast-forwarding data: the trainer on {pod_id} passes over the rows of the first {step} "
        f"steps, for {minutes:.0f} minutes by now; the pod is not idle",
        mark=f"told.forwarding.{pod_id}.{step}",
    )


def _mark(pod_id: str) -> str:
    return f"told.idle.{pod_id}"


def _read(text: str | None) -> Idle | None:
    if not text:
        return None
    since, seen = text.split()
    return Idle(float(since), float(seen))
