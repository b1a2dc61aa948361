"""The variables of a container: the image's, the user's, the cloud's, in this order."""

from __future__ import annotations

from pathlib import Path

from tests.emulators.containers import BASE, mapped
from tests.emulators.images import Images, environment_of
from tests.emulators.vast.instances import PUBLIC_IP, Instance

# Where Vast's images keep what shall last; it is below the container's own disk.
DATA = "/workspace"


def environment(instance: Instance, images: Images, root: Path, temporary: Path) -> dict[str, str]:
    """All variables of a start of the instance's container."""
    data = root / DATA.strip("/")
    order = instance.order
    user = {name: mapped(value, DATA, data) for name, value in order.env.items()}
    injected = {
        "CONTAINER_ID": str(instance.id),
        "CONTAINER_API_KEY": instance.key,
        "VAST_CONTAINERLABEL": f"C.{instance.id}",
        "PUBLIC_IPADDR": PUBLIC_IP,
        "GPU_COUNT": str(instance.ask.size),
        "SSH_PUBLIC_KEY": "",
        "DATA_DIRECTORY": str(data),
        "HOME": str(root),
        "TMPDIR": str(temporary),
    }
    for inner, outer in instance.public_ports.items():
        injected[f"VAST_{order.ports[inner].upper()}_PORT_{inner}"] = str(outer)
    return {**BASE, **environment_of(order.image, images), **user, **injected}
