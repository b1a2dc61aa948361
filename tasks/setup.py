"""Prepare the pod: the files of the run on its volume, and the user's own entry script."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from prefect import task
from prefect.logging import get_run_logger

from pod.logtail import tail
from pod.rundir import RunDir
from runner.adapt import adapt
from runner.errors import TrainingFailed
from runner.secrets import scrub_file
from runner.sources import source_root
from runner.taskfile import TaskFile, parse_task_file

ENTRY_LIMIT = 15 * 60


@task
def write_run_files(folder: RunDir, text: str, name: str) -> TaskFile:
    """Write the committed task file and what axolotl is given of it."""
    task_file = parse_task_file(text, name)
    root = source_root(folder.path, Path(os.environ["AXR_REPOSITORY"]))
    adapted = adapt(
        task_file, run_dir=str(folder.path), source_dir=str((root / name).parent), root=str(root)
    )
    folder.task_file.write_text(text, encoding="utf-8")
    folder.axolotl_file.write_text(adapted.text, encoding="utf-8")
    for warning in adapted.warnings:
        get_run_logger().warning("%s", warning)
    return task_file


@task
def run_entry(folder: RunDir, entry: str | None) -> None:
    """Run the task file's `entry` script in the run's folder, 15 minutes at most; its output goes
    to entry.log, from which secrets are taken out at its end.
    """
    if not entry:
        return
    log = folder.path / "entry.log"
    with log.open("ab") as output:
        try:
            code = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", entry],
                cwd=folder.path,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=ENTRY_LIMIT,
            ).returncode
        except subprocess.TimeoutExpired as late:
            raise TrainingFailed(
                "crash", f"`entry` did not end within {ENTRY_LIMIT // 60} minutes"
            ) from late
        finally:
            scrub_file(log)
    if code:
        said = tail(log.read_text(errors="replace")) or ("it said nothing",)
        raise TrainingFailed("crash", f"`entry` ended with code {code}: {said[-1]}")
