"""The market: machines of hosts, the offers ("asks") that they make, and the tenants beside us.

A machine with n GPUs offers 1, 2, 4, … of them at once; an offer is there while all of its GPUs
are free. GPUs that a tenant took are gone for everybody; a rival who bids only has to be outbid.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from typing import Any

from tests.emulators.faults import Faults

MONTH_HOURS = 720
DAY = 86_400.0


@dataclass(frozen=True)
class Machine:
    """One host's machine: USD per GPU and hour, per GB (traffic), per GB and month (storage)."""

    id: int
    gpu: str
    gpus: int
    gpu_ram: int  # MB
    price: float
    floor: float  # of bids
    place: str
    cores: int = 32
    ram: int = 128_000  # MB, of the whole machine, as the cores are
    disk: float = 2000.0  # GB
    down: float = 900.0  # Mbps
    up: float = 800.0
    down_cost: float = 0.002
    up_cost: float = 0.003
    storage: float = 0.15
    reliability: float = 0.995
    cuda: float = 12.8
    datacenter: bool = False
    verified: bool = True
    days: float = 60.0  # until the host's contract ends
    dlperf: float = 30.0  # of one GPU


@dataclass(frozen=True)
class Ask:
    """An offer: `size` GPUs of a machine from slot `first` on."""

    machine: Machine
    first: int
    size: int

    @property
    def id(self) -> int:
        return self.machine.id * 100 + self.size * 10 + self.first

    @property
    def slots(self) -> frozenset[int]:
        return frozenset(range(self.first, self.first + self.size))


MACHINES = (
    Machine(31001, "RTX A5000", 4, 24_564, 0.22, 0.11, "Oregon, US"),
    Machine(31002, "RTX A5000", 2, 24_564, 0.19, 0.10, "Quebec, CA", up_cost=0.02, cuda=12.4),
    Machine(31003, "RTX 3090", 4, 24_576, 0.20, 0.09, "Poland, PL", reliability=0.96),
    Machine(31004, "RTX 3090", 1, 24_576, 0.17, 0.08, "Vietnam, VN", reliability=0.85),
    Machine(31005, "RTX 4090", 8, 24_564, 0.40, 0.20, "Sweden, SE", datacenter=True, dlperf=70.0),
    Machine(31006, "RTX 4090", 2, 24_564, 0.34, 0.15, "Texas, US", down=90.0, up=40.0, dlperf=70.0),
    Machine(31007, "A40", 4, 46_068, 0.38, 0.19, "Iceland, IS", datacenter=True),
    Machine(31008, "A100 SXM4", 8, 81_920, 1.05, 0.55, "Kansas, US", datacenter=True, dlperf=130.0),
    Machine(31009, "A100 SXM4", 4, 40_960, 0.80, 0.40, "Japan, JP", dlperf=125.0),
    Machine(31010, "H100 SXM", 8, 81_559, 2.10, 1.10, "Utah, US", datacenter=True, dlperf=260.0),
    Machine(31011, "RTX 4090", 1, 24_564, 0.29, 0.12, "Nowhere, XX", verified=False, dlperf=70.0),
    Machine(31012, "RTX A5000", 1, 24_564, 0.15, 0.07, "Kansas, US", days=0.2),
)
_NAMES = {each.name for each in fields(Machine)}


class Market:
    """What is on offer, and to whom it goes. Its owner serialises the calls.

    `mine` of its methods are the GPUs that instances of the account hold: {machine: slots}.
    """

    def __init__(self, faults: Faults, seed: int = 7) -> None:
        self.faults = faults
        self.tenants: dict[int, set[int]] = {}
        self.rivals: dict[int, Decimal] = {}  # USD per GPU and hour that a rival bids
        self._dice = random.Random(seed)

    def machines(self) -> dict[int, Machine]:
        """All machines, with the changes of the switch `machines`."""
        changes: Mapping[str, Any] = self.faults["machines"]
        found = {machine.id: machine for machine in MACHINES}
        for name, change in changes.items():
            number = int(name)
            if change is None:
                found.pop(number, None)
                continue
            known = {key: value for key, value in change.items() if key in _NAMES}
            if number in found:
                found[number] = replace(found[number], **known)
            else:
                found[number] = Machine(**{"id": number, "place": "Iowa, US", **known})
        return found

    def asks(self, mine: Mapping[int, set[int]]) -> list[Ask]:
        """What can be rented now."""
        return [
            ask
            for machine in self.machines().values()
            for ask in _asks_of(machine)
            if not ask.slots & (self.tenants.get(machine.id, set()) | mine.get(machine.id, set()))
        ]

    def find(self, ask_id: int, mine: Mapping[int, set[int]]) -> Ask | None:
        """The offer of this id while it is there."""
        return next((ask for ask in self.asks(mine) if ask.id == ask_id), None)

    def is_snatched(self, ask: Ask) -> bool:
        """Whether a tenant takes this offer at the last moment; then it is gone for good."""
        taken = self.faults.take("snatch", ask.machine.gpu)
        taken = taken or self._dice.random() < self.faults["snatch_probability"]
        if taken:
            self.take(ask)
        return taken

    def take(self, ask: Ask) -> None:
        """Another tenant rents this."""
        self.tenants.setdefault(ask.machine.id, set()).update(ask.slots)

    def to_win(self, machine: Machine) -> Decimal:
        """USD per GPU and hour that a bid must reach."""
        prices: Mapping[str, float] = self.faults["market_price"]
        asked = prices.get(str(machine.id), prices.get(machine.gpu, 0.0))
        bids = [machine.floor, asked, self.rivals.get(machine.id, 0)]
        return max(Decimal(str(bid)) for bid in bids)

    def row(self, ask: Ask, kind: str, storage_gb: float, now: float) -> dict[str, Any]:
        """The offer as a search shows it; `kind` is on-demand, bid or reserved."""
        machine = ask.machine
        share = ask.size / machine.gpus
        min_bid = float(self.to_win(machine)) * ask.size
        base = min_bid if kind == "bid" else machine.price * ask.size
        disk_hour = machine.storage * storage_gb / MONTH_HOURS
        total = base + disk_hour
        return {
            "id": ask.id,
            "ask_contract_id": ask.id,
            "bundle_id": machine.id * 10,
            "machine_id": machine.id,
            "host_id": machine.id % 1000,
            "gpu_name": machine.gpu,
            "num_gpus": ask.size,
            "gpu_frac": share,
            "gpu_ram": machine.gpu_ram,
            "gpu_total_ram": machine.gpu_ram * ask.size,
            "gpu_arch": "nvidia",
            "cpu_arch": "amd64",
            "cpu_name": "EPYC 7763",
            "cpu_cores": machine.cores,
            "cpu_cores_effective": machine.cores * share,
            "cpu_ram": machine.ram,
            "disk_space": machine.disk * share,
            "disk_name": "nvme ",
            "cuda_max_good": machine.cuda,
            "inet_down": machine.down,
            "inet_up": machine.up,
            "inet_down_cost": machine.down_cost,
            "inet_up_cost": machine.up_cost,
            "storage_cost": machine.storage,
            "storage_total_cost": disk_hour,
            "dph_base": base,
            "dph_total": total,
            "min_bid": min_bid,
            "is_bid": kind == "bid",
            "dlperf": machine.dlperf * ask.size,
            "dlperf_per_dphtotal": machine.dlperf * ask.size / total,
            "score": machine.dlperf * ask.size / total * machine.reliability,
            "reliability": machine.reliability,
            "reliability2": machine.reliability,
            "geolocation": machine.place,
            "hosting_type": int(machine.datacenter),
            "verification": "verified" if machine.verified else "unverified",
            "external": None,
            "rentable": True,
            "rented": False,
            "duration": machine.days * DAY,
            "end_date": now + machine.days * DAY,
            "direct_port_count": 100,
            "static_ip": True,
            "public_ipaddr": "192.0.2.45 ",
        }


def _asks_of(machine: Machine) -> list[Ask]:
    sizes = [size for size in (1, 2, 4, 8) if size <= machine.gpus]
    return [
        Ask(machine, first, size)
        for size in sizes
        for first in range(0, machine.gpus - size + 1, size)
    ]
