"""Which clouds there are, by the name that task files use."""

from __future__ import annotations

from blocks.cloud import Cloud, Pod
from blocks.local.cloud import local_cloud
from runner.errors import ConfigError


def cloud(name: str) -> Cloud:
    """The cloud of this name; ConfigError for one that this version does not have."""
    if name == "local":
        return local_cloud()
    raise ConfigError(f"cloud {name!r} is not supported by this version yet: use `cloud: local`")


def all_clouds() -> list[Cloud]:
    """Every cloud that can hold pods of ours."""
    return [cloud("local")]


def cloud_of(pod: Pod) -> Cloud:
    """The cloud that a pod lives in."""
    return cloud(pod.cloud)
