"""The user's repository at the pushed commit: in our copy before the run needs it, on a pod of this
machine before it trains. Rented pods get it through the gateway.
"""

from __future__ import annotations

from blocks.clouds import is_rented
from blocks.logs import log
from blocks.repository import find_repository
from runner.errors import ConfigError, TryAgain
from runner.home import home
from runner.push.git import GitError
from runner.push.tree import TooLarge
from runner.sources import COPIES, lay_out, pushed_items
from tasks.run import Order, Run


def bring_commit(run: Run) -> None:
    """Have the pushed commit in our copy; ConfigError when the repository does not have it."""
    if run.repository is None or run.commit is None:
        return
    repository = find_repository(run.repository)
    if repository is None:
        log().warning(
            "%s is not connected, so the files beside the task file are not read at %s: "
            "axolotl-runner connect %s", run.repository, run.commit, run.repository,
        )  # fmt: skip
        return
    try:
        repository.with_commit(run.commit)
    except TryAgain as away:
        raise ConfigError(str(away)) from away


def lay_out_source(run: Run, order: Order) -> None:
    """Put the files of the pushed commit where a pod of this machine finds them."""
    local = any(not is_rented(cloud) for cloud in order.clouds)
    if run.repository is None or run.commit is None or not local:
        return
    try:
        items = pushed_items(home().path / COPIES, run.repository, run.commit)
    except (GitError, TooLarge) as error:
        raise ConfigError(str(error)) from error
    if items:
        lay_out(items, run.folder)
