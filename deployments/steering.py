"""`axolotl-runner cancel` and `resume`: what the user decides about a run that exists."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from prefect.client.schemas.objects import State
from prefect.states import Scheduled

from deployments.watching import find_run, request_cancel, wait_for_end, watch_run
from runner.errors import ConfigError, RunnerError
from tasks.api import api, write
from tasks.budget import budget_of, left_of_budget
from tasks.run import open_order
from tasks.spending import spent_words
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


def resume_run(wanted: str, *, watch: bool, budget: float | None = None) -> int:
    """Set a run that has ended going again, from its last healthy checkpoint.

    It stays the same run; the limits on attempts and hours count anew, what it has spent does not:
    `budget`, in USD for the whole run, replaces the task file's.
    """
    run_id = find_run(wanted)
    facts = recall(run_id)
    if "outcome" not in facts:
        raise RunnerError(f"run {run_id} has not ended: there is nothing to resume")
    if facts["outcome"] == "completed":
        raise RunnerError(f"run {run_id} is completed: there is nothing to resume")
    if budget is not None:
        facts["budget"] = f"{budget:g}"
    _must_have_money(run_id, facts)
    remember(
        run_id,
        {
            "outcome": "",
            "reason": "",
            "began": "",
            "budget": facts.get("budget", ""),
            **dict.fromkeys(("death", "decided_by", "signalled", "left_to_guard"), ""),
            "generation": int(facts.get("generation", "1")) + 1,
            "asked_after": len(attempts(run_id)),
        },
    )
    again: State[Any] = Scheduled(message="resumed by the user")
    write(lambda: api().set_flow_run_state(UUID(run_id), again, force=True))
    print(f"run {run_id} goes on")
    return watch_run(run_id, cancel_on_interrupt=False) if watch else 0


def _must_have_money(run_id: str, facts: Mapping[str, str]) -> None:
    """RunnerError when the run could only end again: what it spent before counts."""
    try:
        order = open_order(run_id)
    except ConfigError:
        return  # the run itself says what is wrong with its task file
    left = left_of_budget(order, facts)
    if left is not None and left <= 0:
        budget = budget_of(order, facts) or 0.0
        raise RunnerError(
            f"run {run_id} has nothing left of budget: {budget:g} "
            f"({spent_words(facts, datetime.now(UTC))}); give it more, in USD for the whole run: "
            f"axolotl-runner resume {run_id[:8]} --budget {2 * budget:g}"
        )
