"""Check the task file before anything is rented."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from functools import partial

from prefect import task
from prefect.logging import get_run_logger

from blocks.clouds import is_rented
from blocks.grants import granted
from blocks.hub import hub_of
from blocks.runpod.account import runpod_account
from blocks.vast.account import vast_account
from runner.checks.gathering import check_tasks
from runner.checks.ground import Ground
from runner.checks.grounds import ground_in, ground_of_commit, run_environment
from runner.errors import RunnerError
from runner.estimates.telling import estimate_findings, lines
from runner.home import REPOSITORY, axolotl_environment, home
from runner.push.git import GitError
from runner.secrets import GRANT
from runner.sources import COPIES, pushed_content, pushed_paths
from runner.task_secrets import block_name, named_secrets
from runner.taskfile import TaskFileError
from tasks.budget import most_words
from tasks.estimating import estimate_run
from tasks.ordering import PASSED_ON
from tasks.run import Order, Run, open_order
from tasks.sources import bring_commit, lay_out_source
from tasks.standing import recall, remember

ACCOUNTS = {"runpod": runpod_account, "vast": vast_account}
CHECKED = "checked"  # when the run was found to be sound


@task
def check(run: Run) -> Order:
    """Read the run's task file; ConfigError with one clear message when it is wrong."""
    bring_commit(run)
    order = open_order(run.id)
    lay_out_source(run, order)
    if CHECKED not in recall(run.id):
        look(run, order)
        _say_estimate(run, order)
        remember(run.id, {CHECKED: datetime.now(UTC).isoformat()})
    _say_missing_secrets(order)
    get_run_logger().info("%s", most_words(order))
    for cloud in order.clouds:
        _say_balance(cloud, order)
    return order


def look(run: Run, order: Order) -> None:
    """All that `axolotl-runner check` finds, once in a run's life: what its pod needs is not asked
    for again when it trains already. TaskFileError.

    axolotl itself is asked only before a machine is rented: on this one the trainer says the same
    within the same seconds.
    """
    rented = any(is_rented(cloud) for cloud in order.clouds)
    (found,) = check_tasks(
        [(order.task, ground_of(run, order))],
        hub=lambda ground: hub_of(ground.environment or {}),
        axolotl=axolotl_environment() if rented else None,
        prove=True,
    )
    stops = [each for each in found.findings if each.level == "stop"]
    if stops:
        raise TaskFileError(order.task.name, stops)
    for warning in found.findings:
        get_run_logger().warning("%s", warning.sentence(order.task.name))
    for note in found.notes:
        get_run_logger().info("%s", note)


def ground_of(run: Run, order: Order) -> Ground:
    """The files that the run will find, and the variables that its pods will have."""
    given = granted([name for name, value in order.settings.env.items() if value is None])
    variables = {**os.environ, **{GRANT + name: value for name, value in given.items()}}
    if run.repository and run.commit:
        try:
            paths = pushed_paths(home().path / COPIES, run.repository, run.commit)
        except GitError:
            paths = []
        if paths:
            environment = run_environment(order.settings, variables)
            read = partial(pushed_content, home().path / COPIES, run.repository, run.commit)
            return ground_of_commit(paths, run.task_file, order.clouds, environment, read)
    folder = (REPOSITORY / run.task_file).parent
    return ground_in(REPOSITORY, folder, order.clouds, order.settings, variables)


def _say_missing_secrets(order: Order) -> None:
    """A name without a value is a variable that the pod does not have, unless it was granted."""
    names = named_secrets(order.settings)
    given = granted(names)
    for name in names:
        if name not in given and not (name in PASSED_ON and os.environ.get(name)):
            get_run_logger().warning(
                "env.%s has no value and no run is granted one: the pod will not have it. Set "
                "%s%s on the control side, or make a Prefect Secret block %s",
                name, GRANT, name, block_name(name),
            )  # fmt: skip


def _say_estimate(run: Run, order: Order) -> None:
    """What the run will need; TaskFileError where no GPU that it names has room for its weights."""
    found = estimate_run(run, order)
    for line in lines(found):
        get_run_logger().info("%s", line)
    findings = estimate_findings(order.task, found, order.clouds)
    for finding in findings:
        if finding.level == "warn":
            get_run_logger().warning("%s", finding.sentence(order.task.name))
    stops = [finding for finding in findings if finding.level == "stop"]
    if stops:
        raise TaskFileError(order.task.name, stops)


def _say_balance(cloud: str, order: Order) -> None:
    """A warning at most: the cloud itself decides whether the money is enough."""
    find = ACCOUNTS.get(cloud)
    account = find() if find else None
    if account is None:
        return
    try:
        found = account.balance()
    except RunnerError as unknown:  # also a refused key: another cloud of the list may do
        get_run_logger().warning("%s", unknown)
        return
    price = order.settings.max_price_per_hour
    get_run_logger().info("%s account: $%.2f left", cloud, found.left)
    if found.left < found.spend_per_hour + price:
        get_run_logger().warning(
            "%s account: $%.2f left, $%.2f per hour are spent already: it may not last an hour at "
            "max_price_per_hour: %g", cloud, found.left, found.spend_per_hour, price,
        )  # fmt: skip
