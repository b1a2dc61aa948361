"""The limits of the whole installation: pods at once and dollars per day, over all runs.

They stand in the Prefect variable `axr_limits` (runner/installation.py), which people change in the
UI. A run waits for its turn while as many pods live as may; it rents nothing, and a running one
saves a checkpoint and ends, when the day's dollars are spent.

Not covered by dollars per day: a pod that was kept for longer than KEPT_FOR after its run's end,
and what else the cloud's account pays for.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterName,
    FlowRunFilter,
    FlowRunFilterEndTime,
)
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.sorting import FlowRunSort
from prefect.exceptions import ObjectNotFound

from blocks.cloud import Pod
from blocks.clouds import all_clouds
from blocks.logs import log
from runner.errors import ConfigError, KeyRefused, TrainingFailed, TryAgain
from runner.home import home
from runner.installation import DEFAULT_PODS, VARIABLE, InstallationLimits, read_limits
from runner.locks import hold
from runner.notice import dollars
from tasks.api import api, write
from tasks.run import Run
from tasks.spending import cost_so_far
from tasks.standing import facts_of, pods_of, remember
from tasks.whose_pods import installation_id

LOOK_EVERY = 10.0
KEPT_FOR = timedelta(days=3)
PAGE = 200


def installation_limits() -> InstallationLimits:
    """What the variable says; ConfigError when it can't be understood."""
    variable = api().read_variable_by_name(VARIABLE)
    return read_limits(variable.value if variable else None)


def check_day(run: Run, now: datetime, *, rents: bool = False) -> None:
    """TrainingFailed `budget` when the day's dollars are spent. A variable that can't be read ends
    only a run that `rents`: ConfigError.
    """
    try:
        most = installation_limits().dollars_per_day
    except ConfigError as wrong:
        if rents:
            raise
        log().warning("%s", wrong)
        return
    if most is None:
        return
    spent = spent_today(now)
    if spent >= most:
        raise TrainingFailed(
            "budget",
            f"the installation's dollars_per_day: {most:g} are used up: {dollars(spent)} spent "
            "since midnight UTC over all runs; after the next midnight it goes on with: "
            f"axolotl-runner resume {run.id[:8]}",
        )


def spent_today(now: datetime) -> float:
    """USD that all runs have cost since midnight UTC."""
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    runs = _recent_runs(midnight - KEPT_FOR)
    return sum(cost_so_far(facts_of(run), now, since=midnight) for run in runs)


def living_pods(besides: str, now: datetime) -> set[str]:
    """The ids of the pods that live, but for those of the run `besides`.

    A cloud that can't be listed is not empty: of its pods, those count that the runs know of.
    """
    found: set[str] = set()
    ours = ("", installation_id())  # others may share the account of a cloud
    for cloud in all_clouds():
        try:
            pods = cloud.list_ours()
        except (TryAgain, KeyRefused) as unknown:
            log().warning("%s can't be listed (%s): its pods are taken from the runs", cloud.name,
                          unknown)  # fmt: skip
            pods = _known_pods(cloud.name, now)
        found |= {pod.id for pod in pods if pod.run != besides and pod.installation in ours}
    return found


@contextmanager
def a_place(
    run: Run,
    look: Callable[[], None],
    *,
    sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Iterator[None]:
    """Wait until the installation may have one more pod; in the block nobody else makes one.

    `look` is called at each turn and may raise. TrainingFailed when the day's dollars are spent.
    """
    shown = ""
    while True:
        with hold(home().locks / "renting.lock", wait=True):
            check_day(run, now(), rents=True)
            why = _why_wait(run, now())
            if not why:
                if shown:
                    remember(run.id, {"stage": ""})
                yield
                return
        if why != shown:
            shown = why
            log().info("%s", why.capitalize())
            remember(run.id, {"stage": why})
        look()
        sleep(LOOK_EVERY)


def match_queue(limits: InstallationLimits) -> None:
    """Let the queue of runs take as many runs as there may be pods; a limit that its owner gave the
    queue stays. At least one: a run that waits notices when the limit is raised.
    """
    wanted = None if limits.pods is None else max(1, limits.pods)
    prefect = api()
    try:
        queue = prefect.read_work_queue_by_name("runs", work_pool_name="control")
    except ObjectNotFound:
        return
    if queue.concurrency_limit == wanted or queue.concurrency_limit != _said(queue.description):
        return
    text = queue_words(wanted)
    write(lambda: prefect.update_work_queue(queue.id, concurrency_limit=wanted, description=text))


def queue_words(limit: int | None) -> str:
    """The description of the queue of runs, by which a limit of ours is known again."""
    return f"{limit or 'Any number of'} runs at once, as the variable {VARIABLE} says"


def _said(description: str | None) -> int | None:
    """The limit that a description of ours names; -1, which no queue has, of any other one. A queue
    without one has the limit of an installation that had no variable yet.
    """
    if not description:
        return DEFAULT_PODS
    named = re.match(r"(\d+) runs at once", description or "")
    if named:
        return int(named[1])
    return None if description == queue_words(None) else -1


def _why_wait(run: Run, now: datetime) -> str:
    """Why this run can't have a pod now; empty when it can."""
    limits = installation_limits()
    match_queue(limits)
    if limits.pods is None:
        return ""
    living = len(living_pods(run.id, now))
    return f"waiting: {living} pods of at most {limits.pods}" if living >= limits.pods else ""


def _known_pods(cloud: str, now: datetime) -> list[Pod]:
    return [
        Pod(pod_id, f"axr-{run.id}", cloud, datetime.fromisoformat(bill["created"]), 0.0)
        for run in _recent_runs(now - KEPT_FOR)
        for pod_id, bill in pods_of(facts_of(run)).items()
        if bill["cloud"] == cloud and not bill["terminated"]
    ]


def _recent_runs(since: datetime) -> list[FlowRun]:
    """The runs that have not ended, or after `since`."""
    ended = FlowRunFilterEndTime(after_=since)  # type: ignore[arg-type]  # a datetime will do
    return [*_runs(FlowRunFilterEndTime(is_null_=True)), *_runs(ended)]


def _runs(end_time: FlowRunFilterEndTime) -> Iterator[FlowRun]:
    offset = 0
    while True:
        page = api().read_flow_runs(
            deployment_filter=DeploymentFilter(name=DeploymentFilterName(any_=["finetune"])),
            flow_run_filter=FlowRunFilter(end_time=end_time),
            sort=FlowRunSort.ID_DESC,
            limit=PAGE,
            offset=offset,
        )
        yield from page
        if len(page) < PAGE:
            return
        offset += PAGE
