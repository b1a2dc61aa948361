"""Check the task file before anything is rented."""

from __future__ import annotations

from prefect import task
from prefect.logging import get_run_logger

from tasks.run import Order, Run, open_order


@task
def check(run: Run) -> Order:
    """Read the run's task file; ConfigError with one clear message when it is wrong."""
    order = open_order(run.id)
    for warning in (*order.task.warnings, *order.warnings):
        get_run_logger().warning("%s", warning.sentence(order.task.name))
    return order
