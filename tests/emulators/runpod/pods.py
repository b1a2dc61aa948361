"""A pod: what was ordered, where it is in its life, and how both APIs show it."""

from __future__ import annotations

import random
import string
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from tests.emulators.clock import write_time
from tests.emulators.containers import Container
from tests.emulators.logs import Log
from tests.emulators.meter import Meter
from tests.emulators.runpod.billing import disk_rate
from tests.emulators.runpod.commands import parse_args

PUBLIC_IP = "127.0.0.1"
ACTIONS = {
    "PROVISIONING": ["stop", "terminate"],
    "STARTING": ["stop", "terminate"],
    "RUNNING": ["stop", "restart", "terminate"],
    "EXITED": ["start", "terminate"],
    "TERMINATED": [],
}


@dataclass
class Order:
    """What a create call asked for, templates resolved."""

    name: str
    image: str
    gpu: str
    count: int
    cloud: str
    args: str = ""
    disk: int = 50
    env: dict[str, str] = field(default_factory=dict)
    ports: list[str] = field(default_factory=list)
    registry: str | None = None
    mounts: dict[str, Any] = field(default_factory=dict)
    ssh: bool = False
    jupyter: bool = False
    global_networking: bool = False
    stop_after: float | None = None
    terminate_after: float | None = None

    @property
    def mount_path(self) -> str | None:
        """Where its volume is mounted, of either kind."""
        network: list[dict[str, Any]] = self.mounts.get("network", [])
        mount = self.mounts.get("persistent") or next(iter(network), {})
        path = mount.get("path")
        return None if path is None else str(path)

    @property
    def volume_id(self) -> str | None:
        """The network volume, if any."""
        return next((str(mount["volumeId"]) for mount in self.mounts.get("network", [])), None)

    @property
    def volume_gb(self) -> int:
        return int(self.mounts.get("persistent", {}).get("size", 0))


@dataclass
class Pod:
    """A pod that was made. Times in seconds, None for what did not happen yet."""

    id: str
    key: str
    order: Order
    price: Decimal
    center: str
    cuda: str | None
    created: float
    log: Log
    boot_s: float
    pull_s: float
    never_ready: bool = False
    empty_machine: bool = False
    locked: bool = False
    lost: float | None = None
    zero_gpus: bool = False
    status: str = "PROVISIONING"
    boot_from: float = 0.0
    running_since: float | None = None
    started: float | None = None
    restart_at: float | None = None
    kill_at: float | None = None
    ended: float | None = None
    reason: str | None = None
    boots: int = 0
    container: Container | None = None
    public_ports: dict[int, int] = field(default_factory=dict)
    meter: Meter = field(default_factory=Meter)

    @property
    def count(self) -> int:
        return 0 if self.zero_gpus else self.order.count

    @property
    def cost(self) -> Decimal:
        """The GPU rate, USD per hour; nothing when stopped."""
        return Decimal(0) if self.status in ("EXITED", "TERMINATED") else self.price * self.count

    def meter_on(self, now: float) -> None:
        """From now on it costs what its state costs."""
        stopped = self.status == "EXITED"
        self.meter.switch(now, self.cost, disk_rate(self.order.disk, self.order.volume_gb, stopped))

    def new_ports(self) -> None:
        """Public ports of tcp ones: other ones at each start of the container."""
        numbers = [int(port.partition("/")[0]) for port in self.order.ports if "/tcp" in port]
        before = set(self.public_ports.values())
        free = [port for port in random.sample(range(10000, 60000), 20) if port not in before]
        self.public_ports = dict(zip(numbers, free, strict=False))

    def runtime(self, now: float, faults: Any) -> dict[str, Any] | None:
        """Telemetry: `{}` before there is a host, null until the container runs."""
        if self.status == "PROVISIONING" and not self.empty_machine:
            return {}
        if self.status != "RUNNING" or self.running_since is None:
            return None
        if now < self.running_since + faults["runtime_null_for"]:
            return None
        # What a lost host said last stays, and so it does with an ended pod that is still listed.
        now = min(now, self.lost or now, self.ended or now)
        uptime = 0 if self.started is None else max(0, int(now - self.started))
        shown: dict[str, Any] = {"uptime": uptime, "ports": self._ports()}
        if not faults["telemetry_null"]:
            use = faults["telemetry"]
            gpu = {"util": use["gpu"], "memoryUtil": use["gpu_memory"]}
            shown["gpus"] = [dict(gpu) for _ in range(self.count)]
            shown |= {"cpu": {"util": use["cpu"]}, "memory": {"util": use["memory"]}}
        return shown

    def view(self, now: float, faults: Any) -> dict[str, Any]:
        """The pod of REST v2."""
        order = self.order
        shown: dict[str, Any] = {
            "id": self.id,
            "name": order.name,
            "status": self.status,
            "actions": ACTIONS[self.status],
            "image": order.image,
            "args": order.args,
            "disk": order.disk,
            "env": order.env,
            "ports": order.ports,
            "registry": order.registry,
            "mounts": order.mounts,
            "cloud": order.cloud,
            "dataCenterId": None if self.empty_machine else self.center,
            "cudaVersion": None if self.empty_machine else self.cuda,
            "ssh": self._ssh(),
            "template": None,
            "cost": float(self.cost),
            "locked": self.locked,
            "globalNetworking": {"enabled": order.global_networking},
            "runtime": self.runtime(now, faults),
            "createdAt": write_time(self.created),
            "startedAt": None if self.started is None else write_time(self.started),
        }
        if self.count:
            shown["gpu"] = {"id": order.gpu, "count": self.count}
        if form := parse_args(order.args):
            shown |= {"entrypoint": form[0], "cmd": form[1]}
        return shown

    def _ports(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for port in self.order.ports:
            number, _, kind = port.partition("/")
            public = self.public_ports.get(int(number)) if kind == "tcp" else None
            ip = PUBLIC_IP if public else None
            rows.append({"private": int(number), "public": public, "type": kind, "ip": ip})
        return rows

    def _ssh(self) -> dict[str, Any]:
        direct = proxy = None
        if self.status == "RUNNING" and self.order.ssh:
            user = f"{self.id}-64411e"
            proxy = _endpoint("ssh.runpod.io", 22, user)
            if port := self.public_ports.get(22):
                direct = _endpoint(PUBLIC_IP, port, "root")
        return {"proxy": proxy, "direct": direct}


def new_id() -> str:
    """A pod's id as RunPod forms them; short, since paths of sockets hold it."""
    return "".join(random.choices(string.ascii_lowercase + string.digits, k=10))


def _endpoint(host: str, port: int, user: str) -> dict[str, Any]:
    command = f"ssh {user}@{host} -p {port}"
    return {"host": host, "port": port, "username": user, "command": command}
