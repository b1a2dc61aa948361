"""A run's checkpoint store, seen from the flows of its pod: restore from it, and keep it fresh.

The work is done by processes of the worker's Python (pod.store), so that neither a library's
threads nor its settings reach the flow. The place is the task file's `checkpoint_store`; AXR_STORE
overrides it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

from blocks.logs import log
from pod import trainer
from pod.events import Event
from pod.rundir import RunDir, read_json
from pod.saving import worker_environment
from pod.store.choice import recorded
from pod.store.mirror import LOCK
from pod.store.places import StoreError
from runner.locks import is_free
from runner.settings import RunnerSettings
from runner.taskfile import parse_task_file
from tasks.starting import Plan

LOOK_EVERY = 0.2
TEND_EVERY = 30.0


def start_mirror(folder: RunDir, environment: Mapping[str, str] = os.environ) -> bool:
    """Start the mirror of this run unless it lives or the run has no store; True when started.

    It outlives the flow that starts it, and ends with the pod. Its words go to mirror.log.
    """
    url = _url(folder, environment)
    if url is None or _is_own_volume(url, environment) or not is_free(folder.path / LOCK):
        return False
    ionice = shutil.which("ionice")  # the disk is the trainer's first
    with (folder.path / "mirror.log").open("ab") as output:
        subprocess.Popen(
            [*([ionice, "-c", "2", "-n", "7"] if ionice else []), *_command("mirror", folder, url)],
            env=worker_environment(environment),
            cwd=folder.path,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return True


def tending(
    folder: RunDir,
    show: Callable[[list[Event]], None],
    clock: Callable[[], float] = time.monotonic,
) -> Callable[[list[Event]], None]:
    """`show` for a follower, and now and then a look at the mirror: one that died is started again,
    and what keeps checkpoints from the store is said once.
    """
    next_look, said = clock() + TEND_EVERY, None

    def shown(events: list[Event]) -> None:
        nonlocal next_look, said
        show(events)
        if clock() < next_look:
            return
        next_look = clock() + TEND_EVERY
        if start_mirror(folder):
            log().warning("The mirror of the checkpoints had died; it is started again")
        trouble = store_trouble(folder)
        if trouble and trouble != said:
            log().warning("Checkpoints don't reach the store at present: %s", trouble)
        said = trouble

    return shown


def restore_from_store(
    folder: RunDir,
    run: str,
    settings: RunnerSettings,
    environment: Mapping[str, str] = os.environ,
    *,
    before: int | None = None,
    attempt: int | None = None,
) -> int | None:
    """Fetch the newest healthy checkpoint of the run unless this volume has one that is as new.

    `attempt` is the one that is about to start, `before` the onset of the alarm that it comes
    after. Nothing is done when its trainer lives already. Returns the step that was fetched. Raises
    StoreError when the store can't be read: to start over would lose the work.
    """
    url = environment.get("AXR_STORE") or settings.checkpoint_store
    if not url or _is_own_volume(url, environment):
        return None
    living = trainer.find(folder)
    if living is not None and (attempt is None or living.attempt >= attempt):
        return None
    folder.path.mkdir(parents=True, exist_ok=True)
    command = _command("restore", folder, url, run)
    for word, value in (("--before", before), ("--attempt", attempt)):
        command += [] if value is None else [word, str(value)]
    with (folder.path / "mirror.log").open("ab") as output:
        answer = subprocess.run(
            command,
            env=worker_environment(environment),
            cwd=folder.path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=output,
        ).stdout.decode()
    try:
        outcome = json.loads(answer.strip().rpartition("\n")[2])
    except ValueError:
        outcome = {"error": f"checkpoint store {url}: restoring failed, see mirror.log"}
    if "error" in outcome:
        raise StoreError(outcome["error"])
    if outcome["step"] is None:
        return None
    log().info("Fetched checkpoint-%s from %s", outcome["step"], url)
    return int(outcome["step"])


def bring_checkpoints(folder: RunDir, run: str, plan: Plan) -> None:
    """What an earlier pod has stored, for an attempt that is the first one on this volume."""
    if plan.n > 1 and trainer.last(folder) is None:
        settings = parse_task_file(folder.task_file.read_text("utf-8"), "task.yml").settings
        restore_from_store(folder, run, settings, before=plan.before, attempt=plan.n)


def wait_until_stored(
    folder: RunDir,
    seconds: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Give the mirror so long to bring up what is waiting, before its pod ends.

    False when it has not, or when no mirror lives. Ask right after the last checkpoint is recorded:
    the mirror looks every few seconds.
    """
    deadline = clock() + seconds
    while not is_free(folder.path / LOCK):
        standing = read_json(folder.path / "store.json") or {}
        newest = _newest_healthy(folder)
        if newest is None or newest in standing.get("stored", []):
            return True
        if clock() >= deadline:
            return False
        sleep(LOOK_EVERY)
    return False


def store_trouble(folder: RunDir) -> str | None:
    """Why nothing reaches the store at present, None when all is well or there is no store."""
    trouble = (read_json(folder.path / "store.json") or {}).get("trouble")
    return None if trouble is None else str(trouble)


def _newest_healthy(folder: RunDir) -> int | None:
    return max(recorded(folder), default=None)


def _url(folder: RunDir, environment: Mapping[str, str]) -> str | None:
    if given := environment.get("AXR_STORE"):
        return given
    try:
        text = folder.task_file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    return parse_task_file(text, folder.task_file.name).settings.checkpoint_store


def _is_own_volume(url: str, environment: Mapping[str, str]) -> bool:
    return url == "volume" and not environment.get("AXR_STORE_VOLUME")


def _command(module: str, folder: RunDir, url: str, run: str | None = None) -> list[str]:
    words = ["--run-dir", str(folder.path), "--run", run or folder.path.name, "--url", url]
    return [sys.executable, "-m", f"pod.store.{module}", *words]
