"""The body of RunPod's create call, from an order and a candidate; closed, as their API wants it.

Values go as JSON, so quotes, newlines and braces in them are harmless. The container's command is
one string to RunPod, split by them in a way that is written nowhere: ours has no character that
any splitting could touch.
"""

from __future__ import annotations

import base64
from typing import Any

from blocks.cloud import PodOrder
from blocks.image import image_of, min_cuda
from blocks.runpod.candidates import Candidate
from runner.errors import ConfigError

MOST_VARIABLES = 50  # of the user's, per pod
LEAST_VOLUME_GB = 10


def create_body(order: PodOrder, candidate: Candidate, api: str) -> dict[str, Any]:
    """What POST /v2/pods is sent. ConfigError for what RunPod can't do.

    `api` is the address at which the pod ends itself, with the key that RunPod gives it.
    """
    if len(order.environment) >= MOST_VARIABLES:
        raise ConfigError(
            f"RunPod takes {MOST_VARIABLES} variables, this pod would have "
            f"{len(order.environment) + 1}: shorten runner.env"
        )
    body: dict[str, Any] = {
        "name": order.name,
        "cloud": candidate.tier,
        "gpu": _gpu(order, candidate),
        "args": command(order.start_script),
        "disk": order.disk_gb,
        "env": {**order.environment, "AXR_CLOUD_API": api},
        "ports": list(order.ports),
    }
    if candidate.data_center:
        body["dataCenterIds"] = [candidate.data_center]
    mounts = _mounts(order)
    optional = {
        "image": image_of(order),
        "mounts": mounts,
        "templateId": order.template,
        "registry": order.registry,
        "startSsh": order.ssh,
        "startJupyter": order.jupyter,
    }
    return body | {key: value for key, value in optional.items() if value}


def command(script: str) -> str:
    """The container's command: the script in a coat without blanks, quotes or signs of a shell."""
    coat = base64.b64encode(script.encode()).decode()
    return f"bash -c 'echo {coat} | base64 -d | bash'"


def _gpu(order: PodOrder, candidate: Candidate) -> dict[str, Any]:
    gpu: dict[str, Any] = {"id": candidate.gpu, "count": candidate.count}
    cuda = min_cuda(order)
    return gpu | ({"minCudaVersion": cuda} if cuda else {})


def _mounts(order: PodOrder) -> dict[str, Any] | None:
    if order.network_volume:
        return {"network": [{"volumeId": order.network_volume, "path": order.volume_path}]}
    if order.volume_gb:
        size = max(order.volume_gb, LEAST_VOLUME_GB)
        return {"persistent": {"size": size, "path": order.volume_path}}
    return None
