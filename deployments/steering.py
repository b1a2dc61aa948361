"""`axolotl-runner cancel` and `resume`: what the user decides about a run that exists."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from prefect.client.schemas.objects import State
from prefect.states import Scheduled

from deployments.watching import find_run, request_cancel, wait_for_end, watch_run
from runner.errors import RunnerError
from tasks.api import api, write
from tasks.standing import attempts, recall, remember


def cancel_run(wanted: str) -> int:
    """Cancel a run and wait for its end: the trainer saves, the pod is given back."""
    run_id = find_run(wanted)
    if not request_cancel(run_id):
        print(f"run {run_id} has already ended")
        return 0
    state = wait_for_end(run_id, seconds=120)
    print(f"run {run_id}: {state}")
    return 0 if state == "Cancelled" else 1


def resume_run(wanted: str, *, watch: bool) -> int:
    """Set a run that has ended going again, from its last healthy checkpoint.

    It stays the same run; the limits on attempts and hours count anew.
    """
    run_id = find_run(wanted)
    facts = recall(run_id)
    if "outcome" not in facts:
        raise RunnerError(f"run {run_id} has not ended: there is nothing to resume")
    if facts["outcome"] == "completed":
        raise RunnerError(f"run {run_id} is completed: there is nothing to resume")
    remember(
        run_id,
        {
            "outcome": "",
            "reason": "",
            "began": "",
            "generation": int(facts.get("generation", "1")) + 1,
            "asked_after": len(attempts(run_id)),
        },
    )
    again: State[Any] = Scheduled(message="resumed by the user")
    write(lambda: api().set_flow_run_state(UUID(run_id), again, force=True))
    print(f"run {run_id} goes on")
    return watch_run(run_id, cancel_on_interrupt=False) if watch else 0
