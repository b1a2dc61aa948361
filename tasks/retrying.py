"""The one retry rule: bad input, a refused key or want of money are never asked again."""

from __future__ import annotations

from typing import Any

from prefect.client.schemas.objects import State, TaskRun
from prefect.tasks import Task, exponential_backoff

from runner.errors import CreateFailed, TryAgain


def may_try_again(task: Task[..., Any], task_run: TaskRun, state: State[Any]) -> bool:
    """Only what may answer differently in a moment is asked again."""
    return isinstance(state.result(raise_on_failure=False), TryAgain | CreateFailed)


def patiently(times: int, factor: float) -> dict[str, Any]:
    """Task options: `times` retries, `factor` × 1, 2, 4 … seconds apart with jitter."""
    return {
        "retries": times,
        "retry_delay_seconds": exponential_backoff(backoff_factor=factor),
        "retry_jitter_factor": 0.5,
        "retry_condition_fn": may_try_again,
    }
