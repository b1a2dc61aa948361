"""The body of RunPod's create call, from an order and a candidate; closed, as their API wants it.

Values go as JSON, so quotes, newlines and braces in them are harmless. The container's command is
one string to RunPod, split by them in a way that is written nowhere: ours has no character that
any splitting could touch.
"""

from __future__ import annotations

import base64
import re
from typing import Any

from blocks.cloud import PodOrder
from blocks.runpod.candidates import Candidate
from runner.errors import ConfigError

# axolotl's own image for clouds. 0.19.0 is the version that our plugin is tested with.
IMAGE = "axolotlai/axolotl-cloud:0.19.0"
IMAGE_CUDA = "12.8"
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
    if order.image or not order.template:
        body["image"] = order.image or IMAGE
    if candidate.data_center:
        body["dataCenterIds"] = [candidate.data_center]
    mounts = _mounts(order)
    optional = {
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


def cuda_of(image: str | None) -> str | None:
    """The CUDA version of an image, from its tag (`…-cu128-…` is 12.8); None when it says none."""
    if image is None:
        return IMAGE_CUDA
    said = re.search(r"cu(\d{2})(\d)(?!\d)", image)
    return f"{said[1]}.{said[2]}" if said else None


def _gpu(order: PodOrder, candidate: Candidate) -> dict[str, Any]:
    gpu: dict[str, Any] = {"id": candidate.gpu, "count": candidate.count}
    cuda = min_cuda(order)
    return gpu | ({"minCudaVersion": cuda} if cuda else {})


def min_cuda(order: PodOrder) -> str | None:
    """The lowest CUDA version that a host may have: asked for, else what the image needs."""
    if order.min_cuda or order.template:
        return order.min_cuda
    return cuda_of(order.image)


def _mounts(order: PodOrder) -> dict[str, Any] | None:
    if order.network_volume:
        return {"network": [{"volumeId": order.network_volume, "path": order.volume_path}]}
    if order.volume_gb:
        size = max(order.volume_gb, LEAST_VOLUME_GB)
        return {"persistent": {"size": size, "path": order.volume_path}}
    return None
