"""The estimate of a task file for `axolotl-runner check` and the comment at a pull request."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from runner.estimates.estimate import Estimate, Prices, estimate
from runner.estimates.hub import read_model
from runner.estimates.model import Model, UnknownModel
from runner.gateway import RENTED
from runner.taskfile import TaskFile

# A key in the environment is asked with; one in a Prefect block would need Prefect to be up.
KEYS = {"runpod": "RUNPOD_API_KEY", "vast": "VAST_API_KEY"}


def estimate_task(
    task: TaskFile,
    *,
    folders: Sequence[Path] = (),
    offline: bool = False,
    ask_clouds: bool = True,
    environment: Mapping[str, str] = os.environ,
) -> Estimate:
    """The estimate; `folders` are where local files are looked for. What can't be asked, or does
    not answer, is unknown in it.
    """
    revision = task.axolotl.get("revision_of_model")
    model: Model | None = None
    unknown = ""
    try:
        model = read_model(
            str(task.axolotl.get("base_model") or ""),
            revision=str(revision) if revision else None,
            folders=folders,
            offline=offline,
        )
    except UnknownModel as error:
        unknown = str(error)
    clouds = [
        cloud
        for cloud in task.settings.cloud
        if cloud in RENTED and environment.get(KEYS.get(cloud, ""))
    ]

    def ask(gpus: Sequence[str]) -> Prices | None:
        if not clouds or not ask_clouds or offline:
            return None
        from blocks.prices import prices_of  # Prefect takes seconds to import

        return prices_of(clouds, task.settings, gpus)

    return estimate(task.axolotl, task.settings, model, unknown=unknown, folders=folders, ask=ask)
