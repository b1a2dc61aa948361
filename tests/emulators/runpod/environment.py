"""The variables of a container: the image's, the user's, the cloud's, in this order."""

from __future__ import annotations

import os
from pathlib import Path

from tests.emulators.containers import BASE, mapped
from tests.emulators.images import Images, environment_of
from tests.emulators.runpod.pods import PUBLIC_IP, Pod


def environment(
    pod: Pod, images: Images, ssh_keys: list[str], *, volume: Path, root: Path, temporary: Path
) -> dict[str, str]:
    """All variables of a start of the pod's container."""
    order = pod.order
    mount = order.mount_path
    image = environment_of(order.image, images)
    user = {name: mapped(value, mount, volume) for name, value in order.env.items()}
    keys = "\n".join(ssh_keys)
    offered = {"PUBLIC_KEY": keys} if order.ssh and keys else {}
    if order.jupyter:
        offered["JUPYTER_PASSWORD"] = pod.key[-16:]
    injected = {
        "RUNPOD_POD_ID": pod.id,
        "RUNPOD_API_KEY": pod.key,
        "RUNPOD_DC_ID": pod.center,
        "RUNPOD_POD_HOSTNAME": f"{pod.id}-64411e",
        "RUNPOD_GPU_COUNT": str(pod.count),
        "RUNPOD_CPU_COUNT": str(os.cpu_count() or 1),
        "RUNPOD_PUBLIC_IP": PUBLIC_IP,
        "RUNPOD_EMULATED_VOLUME": str(volume) if mount else "",
        "HOME": str(root),
        "TMPDIR": str(temporary),
    }
    if order.volume_id:
        injected["RUNPOD_VOLUME_ID"] = order.volume_id
    if pod.cuda:
        injected["CUDA_VERSION"] = pod.cuda
    for private, public in pod.public_ports.items():
        injected[f"RUNPOD_TCP_PORT_{private}"] = str(public)
    return {**BASE, **image, **offered, **user, **injected}
