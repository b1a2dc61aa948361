"""Which clouds there are, by the name that task files use."""

from __future__ import annotations

from blocks.cloud import Cloud, Pod
from blocks.local.cloud import local_cloud
from blocks.runpod.account import runpod_account, runpod_cloud
from blocks.vast.account import vast_account, vast_cloud
from runner.errors import ConfigError, TryAgain
from runner.gateway import RENTED


def cloud(name: str) -> Cloud:
    """The cloud of this name; ConfigError for one that this installation can't use."""
    if name == "local":
        return local_cloud()
    if name == "runpod":
        return runpod_cloud()
    if name == "vast":
        return vast_cloud()
    raise ConfigError(f"cloud {name!r} is not supported by this version yet")


def all_clouds() -> list[Cloud]:
    """Every cloud that this installation has an account of, and so can hold pods of ours."""
    return [
        local_cloud(),
        *([runpod_cloud()] if runpod_account() else []),
        *([vast_cloud()] if vast_account() else []),
    ]


def cloud_of(pod: Pod) -> Cloud:
    """The cloud that a pod lives in."""
    return cloud(pod.cloud)


def volume_price(name: str, volume: str | None) -> float:
    """USD per hour of a network volume, which the cloud of this name bills beside its pods; 0.0
    without one, and where the price can't be known now.
    """
    if volume is None or name != "runpod":
        return 0.0
    try:
        return runpod_cloud().volume_price(volume)
    except TryAgain:
        return 0.0


def is_rented(name: str) -> bool:
    """True for clouds whose pods are other people's machines."""
    return name in RENTED
