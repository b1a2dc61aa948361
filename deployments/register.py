"""Make the server know our pools, queues, blocks, deployments and triggers; safe to repeat."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from contextlib import suppress

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from prefect.variables import Variable
from prefect.workers.process import ProcessWorker

from blocks.connected import ConnectedRepository
from blocks.notifier import Notifier
from blocks.runpod.account import RunPodAccount
from blocks.vast.account import VastAccount
from runner.errors import ConfigError
from runner.home import REPOSITORY
from runner.installation import DEFAULT_PODS, VARIABLE, InstallationLimits
from tasks.api import api
from tasks.installation import installation_limits, match_queue, queue_words

# As many runs at once as there may be pods; the rest waits in the queue, where it costs no process.
MOST_RUNS_AT_ONCE = DEFAULT_PODS
QUEUES: dict[str, int | None] = {"runs": MOST_RUNS_AT_ONCE, "service": None}
STAMP = "axr_registered"
WATCH = "AXR_WATCH"  # set: branches of connected repositories are looked at every two minutes


def register() -> bool:
    """Register everything of prefect.yaml; False when this very version was registered before."""
    _ensure_limits()
    _follow_limits()
    done = _register(api())
    _switch_watching(api(), bool(os.environ.get(WATCH)))
    return done


def _register(prefect: SyncPrefectClient) -> bool:
    version = _version()
    if Variable.get(STAMP, default=None) == version:
        return False
    for pool in ("control", "pods"):
        _ensure_pool(prefect, pool)
    for queue, limit in QUEUES.items():
        _ensure_queue(prefect, queue, limit)
    for block in (Notifier, RunPodAccount, VastAccount, ConnectedRepository):
        block.register_type_and_schema()
    subprocess.run(
        [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"],
        cwd=REPOSITORY,
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=120,
    )
    Variable.set(STAMP, version, overwrite=True)
    return True


def _switch_watching(prefect: SyncPrefectClient, active: bool) -> None:
    deployment = prefect.read_deployment_by_name("watch_repo/watch")
    for schedule in deployment.schedules:
        if schedule.active != active:
            prefect.update_deployment_schedule(deployment.id, schedule.id, active=active)


def _version() -> str:
    """Of what is registered: the file, where it lies, the flows, whose parameters the server
    checks, and the blocks.
    """
    parts = ("flows/*.py", "blocks/*.py", "blocks/*/account.py")
    files = [REPOSITORY / "prefect.yaml", *(f for p in parts for f in sorted(REPOSITORY.glob(p)))]
    content = b"".join(file.read_bytes() for file in files)
    return hashlib.sha256(content + str(REPOSITORY).encode()).hexdigest()[:16]


def _ensure_pool(prefect: SyncPrefectClient, name: str) -> None:
    """With its job template, which a first worker would fill in: a rented pod's must not, since it
    is the command that every pod runs.
    """
    template = ProcessWorker.get_default_base_job_template()
    try:
        prefect.create_work_pool(
            WorkPoolCreate(name=name, type="process", base_job_template=template)
        )
    except ObjectAlreadyExists:
        if not prefect.read_work_pool(name).base_job_template:
            prefect.update_work_pool(name, WorkPoolUpdate(base_job_template=template))


def _ensure_limits() -> None:
    """The installation's limits where people can change them; what they have written stays."""
    if Variable.get(VARIABLE, default=None) is None:
        with suppress(ValueError):  # somebody else has just written them
            Variable.set(VARIABLE, InstallationLimits().as_variable(), tags=["axolotl-runner"])


def _follow_limits() -> None:
    try:
        match_queue(installation_limits())
    except ConfigError as wrong:  # the next run that would rent says so, too
        print(f"axolotl-runner: {wrong}", flush=True)


def _ensure_queue(prefect: SyncPrefectClient, name: str, limit: int | None) -> None:
    """Create the queue with its limit; one that exists keeps the limit that its owner gave it."""
    try:
        prefect.read_work_queue_by_name(name, work_pool_name="control")
    except ObjectNotFound:
        # A request that is sent again because its answer got lost finds what the first one made.
        with suppress(ObjectAlreadyExists):
            prefect.create_work_queue(
                name,
                work_pool_name="control",
                concurrency_limit=limit,
                description=queue_words(limit) if limit else None,
            )
