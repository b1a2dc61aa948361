"""Paths of a rented run that lie on the container's own disk, which ends with the pod."""

from __future__ import annotations

import os
from collections.abc import Iterator

from runner.checks.ground import Ground
from runner.finding import Finding, warn
from runner.gateway import RENTED
from runner.renting import volume_path
from runner.taskfile import TaskFile

CACHES = ("HF_HOME", "HF_HUB_CACHE", "HF_DATASETS_CACHE", "TRANSFORMERS_CACHE")


def volume_findings(task: TaskFile, ground: Ground) -> Iterator[Finding]:
    """A warning for prepared data and caches beside the volume; output_dir is the run's own folder
    whatever the file says.
    """
    if not any(cloud in RENTED for cloud in ground.clouds):
        return
    volume = volume_path(task.settings)
    prepared = task.axolotl.get("dataset_prepared_path")
    if isinstance(prepared, str) and os.path.isabs(prepared) and not _within(prepared, volume):
        yield warn(
            "leaves-volume",
            f"dataset_prepared_path: {prepared} is not on the volume ({volume}), so each new pod "
            "prepares the data again",
            f"name a folder below {volume}, or leave it out: the run's own folder is used",
            key="dataset_prepared_path",
            at=task.place("dataset_prepared_path"),
        )
    for name in CACHES:
        value = task.settings.env.get(name)
        if value and os.path.isabs(value) and not _within(value, volume):
            yield warn(
                "leaves-volume",
                f"env.{name}: {value} is not on the volume ({volume}): downloads fill the "
                "container's disk and are gone with it",
                f"name a folder below {volume}",
                key=f"env.{name}",
                at=_env_place(task, name),
            )


def _within(path: str, folder: str) -> bool:
    return os.path.normpath(path).startswith(os.path.normpath(folder).rstrip("/") + "/")


def _env_place(task: TaskFile, name: str) -> tuple[int, int]:
    found = (task.place(block, "env", name) for block in ("runner", "runpod"))
    return next((place for place in found if place != (1, 1)), task.setting_place("env"))
