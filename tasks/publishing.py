"""Publish from the pod: the healthy final weights, to `model/` on the volume and to the hub when
asked.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefect import task

from blocks.logs import log
from pod.publish.gather import gather
from pod.publish.merge import NotMerged, merge
from pod.rundir import RunDir, write_json
from pod.saving import worker_environment
from runner.errors import TrainingFailed
from runner.taskfile import parse_task_file

# How long an upload may take: this, and the time of its bytes at a rate that any pod has.
LEAST_SECONDS = 1800.0
BYTES_PER_SECOND = 5e6


@task
def merge_adapter(folder: RunDir) -> Path | None:
    """The adapter merged into its base, when the task file wants that and it can be done; a merge
    that fails leaves the adapter, and is said.
    """
    wanted = parse_task_file(folder.task_file.read_text("utf-8"), "task.yml").settings.merge
    if not wanted:
        return None
    try:
        return merge(folder)
    except NotMerged as failed:
        log().warning("The adapter is published instead of a merged model: %s", failed)
        return None


@task
def gather_model(folder: RunDir, merged: Path | None = None) -> Path:
    """`model/` beside the output folder: the final files without checkpoints."""
    return gather(folder, merged)


@task
def upload(
    folder: RunDir,
    repository: str | None,
    told: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> str | None:
    """Bring `model/` with its card to the hub and have every file of it compared by its hash; the
    repository. TrainingFailed when the hub does not have it.

    The work is done by a process of its own (pod.publish): its settings are not the flow's, and it
    can be ended.
    """
    if not repository:
        return None
    write_json(folder.path / "told.json", told or {})
    outcome = _outcome(folder, repository, environment)
    if "error" in outcome:
        raise TrainingFailed("crash", str(outcome["error"]))
    done = outcome["published"]
    log().info("%s holds the model: %s files, %s sent", repository, done["files"], done["sent"])
    if done["card"]:
        log().warning("Its card: %s", done["card"])
    return repository


def _outcome(folder: RunDir, repository: str, environment: Mapping[str, str]) -> dict[str, Any]:
    size = sum(file.stat().st_size for file in (folder.path / "model").rglob("*"))
    within = LEAST_SECONDS + size / BYTES_PER_SECOND
    words = ["--run-dir", str(folder.path), "--repository", repository]
    try:
        with (folder.path / "publish.log").open("ab") as output:
            answer = subprocess.run(
                [sys.executable, "-m", "pod.publish", *words],
                env=worker_environment(environment),
                cwd=folder.path,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=output,
                timeout=within,
            ).stdout.decode(errors="replace")
    except subprocess.TimeoutExpired:
        return {"error": f"the upload to {repository} did not end within {within:.0f} s"}
    try:
        found = json.loads(answer.strip().rpartition("\n")[2])
    except ValueError:
        found = None
    if isinstance(found, dict) and ("error" in found or "published" in found):
        return found
    return {"error": f"the upload to {repository} left no word, see publish.log"}
