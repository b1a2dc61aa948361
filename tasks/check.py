"""Check the task file before anything is rented."""

from __future__ import annotations

from prefect import task
from prefect.logging import get_run_logger

from blocks.runpod.account import runpod_account
from runner.errors import TryAgain
from tasks.run import Order, Run, open_order
from tasks.sources import bring_commit, lay_out_source


@task
def check(run: Run) -> Order:
    """Read the run's task file; ConfigError with one clear message when it is wrong."""
    bring_commit(run)
    order = open_order(run.id)
    lay_out_source(run, order)
    for warning in (*order.task.warnings, *order.warnings):
        get_run_logger().warning("%s", warning.sentence(order.task.name))
    if "runpod" in order.clouds:
        _say_balance(order)
    return order


def _say_balance(order: Order) -> None:
    """A warning at most: RunPod itself decides whether the money is enough (402)."""
    account = runpod_account()
    if account is None:
        return
    try:
        found = account.balance()
    except TryAgain as unknown:
        get_run_logger().warning("%s", unknown)
        return
    price = order.settings.max_price_per_hour
    get_run_logger().info("RunPod account: $%.2f left", found.left)
    if found.left < found.spend_per_hour + price:
        get_run_logger().warning(
            "RunPod account: $%.2f left, $%.2f per hour are spent already: it may not last an hour "
            "at max_price_per_hour: %g", found.left, found.spend_per_hour, price,
        )  # fmt: skip
