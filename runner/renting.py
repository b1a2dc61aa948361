"""What is knowable about a rented run from its task file alone, before anything is rented."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence

from runner.errors import ConfigError
from runner.finding import Finding, stop, warn
from runner.gateway import RENTED, gateway_url
from runner.settings import AUTO, RunnerSettings
from runner.sharing import why_rigid
from runner.taskfile import TaskFile

# axolotl's image has its code and its Python below the first; a volume there would hide both.
HIDES_IMAGE, BESIDE_IMAGE = "/workspace", "/workspace/data"
NO_FILTER = ("min_vcpu_count", "min_memory_in_gb", "min_download", "min_upload")
GPU_OF_VAST = "Vast has them, such as RTX A5000 (those of RunPod are understood too)"
LOGIN = re.compile(r"-u \S+ -p \S+ \S+")


def renting_findings(
    task: TaskFile, clouds: Sequence[str], environment: Mapping[str, str] = os.environ
) -> list[Finding]:
    """Findings for the rented ones among `clouds`; none for a run on this machine."""
    rented = [cloud for cloud in clouds if cloud in RENTED]
    if not rented:
        return []
    return [
        *_reachable(task, rented, environment),
        *_model_survives(task),
        *_gpu_named(task, rented),
        *_gpu_counts(task),
        *(_runpod(task) if "runpod" in rented else []),
        *(_vast(task) if "vast" in rented else []),
    ]


def volume_path(settings: RunnerSettings) -> str:
    """Where the volume of a rented pod is mounted: never over what axolotl's image brings."""
    path = settings.volume_mount_path.rstrip("/") or "/"
    return BESIDE_IMAGE if _is_axolotls(settings) and path == HIDES_IMAGE else path


def _reachable(
    task: TaskFile, rented: Sequence[str], environment: Mapping[str, str]
) -> Iterator[Finding]:
    at = task.setting_place("cloud")
    for cloud in rented:
        try:
            gateway_url(cloud, environment)
        except ConfigError as error:
            what, _, todo = str(error).partition(": ")[2].partition(": ")
            yield stop("gateway", f"cloud {cloud}: {what}", todo, key="cloud", at=at)


def _model_survives(task: TaskFile) -> Iterator[Finding]:
    """A rented pod's disk ends with it: what it trained must have somewhere to go."""
    settings = task.settings
    store = settings.checkpoint_store
    kept = store is not None and (store != "volume" or settings.network_volume is not None)
    if task.axolotl.get("hub_model_id") or kept or not settings.one_shot:
        return
    what = "the model would be lost with the rented pod"
    if store == "volume":
        what = "checkpoint_store: volume is lost with the rented pod unless it is a network volume"
    yield stop(
        "model-lost",
        what,
        "set hub_model_id, checkpoint_store: hf://user/repository, or network_volume with "
        "checkpoint_store: volume",
        key="hub_model_id",
        at=task.setting_place("checkpoint_store"),
    )


def _gpu_named(task: TaskFile, rented: Sequence[str]) -> Iterator[Finding]:
    if not task.settings.gpu:
        names = "RunPod has them, such as NVIDIA A40"
        yield stop(
            "gpu",
            "no GPU is named",
            f"add gpu: with names as {names if 'runpod' in rented else GPU_OF_VAST}; or write "
            f"gpu: {AUTO}, which takes the cheapest that the training fits on",
            key="gpu",
            at=task.setting_place("cloud"),
        )


def _gpu_counts(task: TaskFile) -> Iterator[Finding]:
    """Several counts only where a checkpoint can go on with any of them."""
    settings = task.settings
    what = why_rigid(task.axolotl)
    if what and len(set(settings.gpu_count)) > 1:
        yield stop(
            "gpu-count",
            f"with {what} a run can only go on with the number of GPUs that it began with",
            f"name one, such as gpu_count: {settings.gpu_count[0]}",
            key="gpu_count",
            at=task.setting_place("gpu_count"),
        )


def _runpod(task: TaskFile) -> Iterator[Finding]:
    settings = task.settings
    if settings.spot:
        yield warn(
            "spot",
            "RunPod no longer rents interruptible pods: an on-demand one within "
            f"max_price_per_hour: {settings.max_price_per_hour:g} is taken",
            "list vast in cloud: for interruptible machines",
            key="spot",
            at=task.setting_place("spot"),
        )
    if _is_axolotls(settings) and settings.volume_mount_path.rstrip("/") == HIDES_IMAGE:
        yield warn(
            "volume-path",
            f"a volume at {HIDES_IMAGE} would hide axolotl itself: it is mounted at {BESIDE_IMAGE}",
            f"write volume_mount_path: {BESIDE_IMAGE}",
            key="volume_mount_path",
            at=task.setting_place("volume_mount_path"),
        )
    for name in NO_FILTER:
        if getattr(settings, name):
            yield warn(
                "no-filter",
                f"RunPod can no longer choose machines by {name}",
                "choose by gpu, cloud_type and data_centers",
                key=name,
                at=task.setting_place(name),
            )


def _vast(task: TaskFile) -> Iterator[Finding]:
    settings = task.settings
    if settings.network_volume:
        yield stop(
            "network-volume",
            "a volume of Vast belongs to one machine: another pod of the run could not mount it",
            "leave network_volume out, with checkpoint_store: hf://… or s3://…; or leave vast out",
            key="network_volume",
            at=task.setting_place("network_volume"),
        )
    if settings.registry and not LOGIN.fullmatch(settings.registry):
        yield stop(
            "registry",
            "Vast has no stored logins of registries",
            "write the login itself, -u USER -p TOKEN SERVER, without blanks in any of them",
            key="registry",
            at=task.setting_place("registry"),
        )
    for name in ("ssh", "jupyter"):
        if getattr(settings, name):
            yield warn(
                "no-access",
                f"Vast starts no {name} beside a command, and ours is one",
                f"leave {name} out, or start it in entry:",
                key=name,
                at=task.setting_place(name),
            )


def _is_axolotls(settings: RunnerSettings) -> bool:
    return settings.image is None or "axolotl" in settings.image
