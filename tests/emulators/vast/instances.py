"""An instance: what was ordered, where it is in its life, what it costs, how the API shows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from tests.emulators.containers import Container
from tests.emulators.logs import Log
from tests.emulators.meter import Meter
from tests.emulators.vast.market import DAY, MONTH_HOURS, Ask
from tests.emulators.vast.orders import Order

PUBLIC_IP = "127.0.0.1"


@dataclass
class Instance:
    """An instance that was made. Times in seconds, None for what did not happen yet.

    `state` is what Vast calls cur_state, `wanted` what it calls intended_status. `outbid` is known
    here alone: the API shows an instance that was outbid as one that was stopped.
    """

    id: int
    key: str
    order: Order
    ask: Ask
    created: float
    log: Log
    actual: str | None = None
    wanted: str = "running"
    state: str = "running"
    message: str | None = None
    outbid: bool = False
    scheduling: bool = False
    stuck: str | None = None
    pull_error: bool = False
    ghost: bool = False
    has_image: bool = False
    boot_from: float = 0.0
    running_since: float | None = None
    restart_at: float | None = None
    kill_at: float | None = None
    lost: float | None = None
    ended: float | None = None
    reason: str | None = None
    boots: int = 0
    container: Container | None = None
    public_ports: dict[str, int] = field(default_factory=dict)
    meter: Meter = field(default_factory=Meter)
    traffic: Decimal = Decimal(0)  # USD

    @property
    def is_stopped(self) -> bool:
        """Whether it holds no GPU."""
        return self.state == "stopped"

    @property
    def base(self) -> Decimal:
        """The GPUs' price while it runs, USD per hour: of a bid, the bid."""
        if self.order.bid is not None:
            return Decimal(str(self.order.bid))
        return Decimal(str(self.ask.machine.price)) * self.ask.size

    @property
    def storage(self) -> Decimal:
        """USD per hour for the disk, running or not."""
        machine = self.ask.machine
        return Decimal(str(machine.storage)) * Decimal(str(self.order.disk)) / MONTH_HOURS

    def meter_on(self, now: float) -> None:
        """From now on it costs what its state costs."""
        running = self.actual == "running" and not self.is_stopped and self.lost is None
        storage = Decimal(0) if self.lost is not None else self.storage
        self.meter.switch(now, self.base if running else Decimal(0), storage)

    def cost(self, now: float) -> Decimal:
        """USD so far, traffic included."""
        return self.meter.total(now) + self.traffic

    def end_date(self) -> float:
        """When the host's contract ends."""
        return self.created + self.ask.machine.days * DAY

    def view(self, now: float, faults: Any, min_bid: float) -> dict[str, Any]:
        """The instance as the list and the single look show it."""
        machine, order, size = self.ask.machine, self.order, self.ask.size
        base, storage = float(self.base), float(self.storage)
        share = size / machine.gpus
        shown: dict[str, Any] = {
            "id": self.id,
            "machine_id": machine.id,
            "host_id": machine.id % 1000,
            "bundle_id": machine.id * 10,
            "actual_status": self.actual,
            "intended_status": self.wanted,
            "cur_state": self.state,
            "next_state": self.wanted if self.scheduling else self.state,
            "status_msg": self.message,
            "label": order.label,
            "template_id": None,
            "template_hash_id": None,
            "template_name": None,
            "image_uuid": order.image,
            "image_args": order.args,
            "image_runtype": order.runtype,
            "extra_env": order.extra_env,
            "onstart": order.onstart,
            "jupyter_token": self.key[:16],
            "public_ipaddr": f"{PUBLIC_IP} \n",
            "local_ipaddrs": "10.0.0.5 172.17.0.1 \n",
            "ssh_host": "ssh5.vast.ai",
            "ssh_idx": "5",
            "ssh_port": 10_000 + self.id % 1000,
            "machine_dir_ssh_port": 21_000,
            "start_date": self.created,
            "end_date": self.end_date(),
            "duration": self.end_date() - now,
            "uptime_mins": None,
            "cpu_arch": "amd64",
            "cpu_cores": machine.cores,
            "cpu_cores_effective": machine.cores * share,
            "cpu_name": "EPYC 7763",
            "cpu_ram": machine.ram,
            "disk_name": "nvme ",
            "disk_space": order.disk,
            "disk_util": -1,
            "disk_usage": -1,
            "direct_port_count": 100,
            "direct_port_start": -1,
            "direct_port_end": -1,
            "static_ip": True,
            "gpu_arch": "nvidia",
            "gpu_name": machine.gpu,
            "gpu_ram": machine.gpu_ram,
            "gpu_totalram": machine.gpu_ram * size,
            "gpu_frac": share,
            "num_gpus": size,
            "geolocation": machine.place,
            "hosting_type": int(machine.datacenter),
            "verification": "verified" if machine.verified else "unverified",
            "rentable": True,
            "reliability2": machine.reliability,
            "is_bid": order.bid is not None,
            "min_bid": min_bid,
            "dph_base": base,
            "dph_total": base + storage,
            "storage_cost": machine.storage,
            "storage_total_cost": storage,
            "inet_up": machine.up,
            "inet_down": machine.down,
            "inet_up_cost": machine.up_cost,
            "inet_down_cost": machine.down_cost,
            "search": {"gpuCostPerHour": base, "diskHour": storage, "totalHour": base + storage},
            "instance": {"gpuCostPerHour": base, "diskHour": storage, "totalHour": base + storage},
            "webpage": None,
            "external": False,
            "volume_info": [],
            **self._telemetry(faults),
            **self._ports(),
        }
        if faults["no_start_date"]:
            del shown["start_date"], shown["extra_env"]
        return shown

    def _telemetry(self, faults: Any) -> dict[str, Any]:
        names = ("gpu_util", "gpu_temp", "cpu_util", "mem_usage", "mem_limit", "vmem_usage")
        if self.actual != "running" or faults["telemetry_null"]:
            return {**dict.fromkeys(names), "cpu_util": 0.0}
        use = faults["telemetry"]
        limit = self.ask.machine.ram / 1000 * self.ask.size / self.ask.machine.gpus
        values = (use["gpu"], 60.0, use["cpu"], use["memory"], limit, 10.0)
        return dict(zip(names, values, strict=True))

    def _ports(self) -> dict[str, Any]:
        """Only while it runs."""
        if self.actual != "running":
            return {}
        ports = {
            f"{inner}/{kind}": [{"HostIp": "0.0.0.0", "HostPort": str(self.public_ports[inner])}]
            for inner, kind in self.order.ports.items()
            if inner in self.public_ports
        }
        return {"ports": ports}
