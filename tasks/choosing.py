"""Which GPUs a run asks a cloud for: those of its task file, or with `gpu: auto` the cheapest that
its training fits on, chosen once and written down, so that each pod of the run is of the same list.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from blocks.cloud import PodOrder
from blocks.clouds import cloud as cloud_named
from blocks.clouds import is_rented
from blocks.logs import log
from runner.errors import ConfigError, NoCapacity, TryAgain
from runner.estimates.fitting import cheapest_first, fitting
from runner.estimates.hub import read_model
from runner.estimates.model import HubAway, Model, UnknownModel
from runner.estimates.training import training_of
from runner.estimates.vram import vram
from runner.home import REPOSITORY
from runner.settings import AUTO
from runner.taskfile import TaskFile
from tasks.run import Order, Run
from tasks.standing import recall, remember


def with_gpus(run: Run, order: Order, wanted: PodOrder, cloud: str) -> PodOrder:
    """The pod order with the run's GPUs for this cloud; `wanted` has all the rest.

    ConfigError when the size of the model can't be known, NoCapacity when no GPU has room within
    the price limit, TryAgain while the hub or the cloud is away.
    """
    if order.settings.gpu != [AUTO]:
        return replace(wanted, gpus=tuple(order.settings.gpu))
    if not is_rented(cloud):
        return wanted
    known = recall(run.id).get(f"gpus.{cloud}")
    gpus = tuple(json.loads(known)) if known else _choose(run, order, wanted, cloud)
    return replace(wanted, gpus=gpus)


def model_of_run(run: Run, task: TaskFile, *, offline: bool = False) -> Model:
    """The run's base model; UnknownModel, HubAway."""
    revision = task.axolotl.get("revision_of_model")
    return read_model(
        str(task.axolotl.get("base_model") or ""),
        revision=str(revision) if revision else None,
        folders=source_folders(run),
        offline=offline,
    )


def source_folders(run: Run) -> list[Path]:
    """Where the files beside the task file lie on this machine, if they do."""
    root = run.folder / "source" if run.repository else REPOSITORY
    return [(root / run.task_file).parent, root]


def _choose(run: Run, order: Order, wanted: PodOrder, cloud: str) -> tuple[str, ...]:
    try:
        model = model_of_run(run, order.task)
    except HubAway as away:
        raise TryAgain(f"gpu: {AUTO}: {away}") from away
    except UnknownModel as unknown:
        raise ConfigError(
            f"gpu: {AUTO} needs the size of the model, which is unknown: {unknown}; name the GPUs"
        ) from unknown
    training = training_of(order.task.axolotl, gpus=wanted.gpu_count, folders=source_folders(run))
    need = vram(model, training)
    roomy = fitting(need)
    prices = cloud_named(cloud).prices(replace(wanted, gpus=tuple(gpu.name for gpu in roomy)))
    names = [gpu.name for gpu in cheapest_first(roomy, prices)]
    if not names:
        raise NoCapacity(
            f"gpu: {AUTO}: {cloud} has no GPU for {need} within "
            f"max_price_per_hour: {wanted.max_price_per_hour:g}"
        )
    if cloud == "vast":  # its market changes by the hour, and it refuses no name
        names += [gpu.name for gpu in roomy if gpu.name not in names]
    remember(run.id, {f"gpus.{cloud}": json.dumps(names)})
    log().info("gpu: %s on %s: %s, for %s", AUTO, cloud, ", ".join(names[:5]), need)
    return tuple(names)
