"""What can be rented, where, at what price, and how much of it is free.

Prices are plausible, not today's. `stock` = {gpu id: {"SECURE": n, "COMMUNITY": {center: n}}} is
the number of GPUs before those that our own pods hold; a cloud that it leaves out has none, a GPU
that it leaves out has PLENTY.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

PLENTY = 64


@dataclass(frozen=True)
class Center:
    """A data center and the CUDA version of its hosts."""

    id: str
    name: str
    region: str
    country: str
    cuda: str


@dataclass(frozen=True)
class Gpu:
    """A GPU type; prices in USD an hour for one, None where that cloud does not have it."""

    id: str
    name: str
    pool: str | None
    memory: int
    secure: str | None
    community: str | None
    centers: tuple[str, ...]
    manufacturer: str = "NVIDIA"

    def price(self, cloud: str) -> Decimal | None:
        text = self.secure if cloud == "SECURE" else self.community
        return None if text is None else Decimal(text)


CENTERS = {
    center.id: center
    for center in (
        Center("US-KS-2", "US-KS-2", "NORTH_AMERICA", "US", "12.8"),
        Center("US-TX-3", "US-TX-3", "NORTH_AMERICA", "US", "12.4"),
        Center("CA-MTL-1", "CA-MTL-1", "NORTH_AMERICA", "CA", "12.8"),
        Center("EU-RO-1", "EU-RO-1", "EUROPE", "RO", "13.0"),
        Center("EUR-IS-1", "EUR-IS-1", "EUROPE", "IS", "12.8"),
        Center("EU-SE-1", "EU-SE-1", "EUROPE", "SE", "12.4"),
    )
}

GPUS = {
    gpu.id: gpu
    for gpu in (
        Gpu("NVIDIA RTX A5000", "RTX A5000", "AMPERE_24", 24, "0.27", "0.16",
            ("EU-RO-1", "EU-SE-1", "US-TX-3")),
        Gpu("NVIDIA GeForce RTX 3090", "RTX 3090", "AMPERE_24", 24, "0.46", "0.22",
            ("US-KS-2", "CA-MTL-1")),
        Gpu("NVIDIA GeForce RTX 4090", "RTX 4090", "ADA_24", 24, "0.69", "0.34",
            ("US-KS-2", "US-TX-3", "EU-RO-1", "EUR-IS-1")),
        Gpu("NVIDIA A40", "A40", "AMPERE_48", 48, "0.40", None, ("CA-MTL-1", "EU-SE-1")),
        Gpu("NVIDIA L40S", "L40S", "ADA_48_PRO", 48, "0.86", "0.79", ("US-TX-3", "EU-RO-1")),
        Gpu("NVIDIA A100 80GB PCIe", "A100 PCIe", "AMPERE_80", 80, "1.64", "1.19",
            ("US-KS-2", "CA-MTL-1", "EU-RO-1")),
        Gpu("NVIDIA H100 80GB HBM3", "H100 SXM", "HOPPER_80", 80, "2.99", "2.69",
            ("US-KS-2", "US-TX-3", "EUR-IS-1")),
        Gpu("NVIDIA H200", "H200 SXM", "HOPPER_141", 141, "3.99", None, ("US-KS-2", "EUR-IS-1")),
        Gpu("AMD Instinct MI300X OAM", "MI300X", None, 192, "2.49", None, ("EU-RO-1",), "AMD"),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Wish:
    """Where GPUs are looked for; empty means anywhere."""

    count: int = 1
    cloud: str = "SECURE"
    centers: frozenset[str] = frozenset()
    countries: frozenset[str] = frozenset()
    cuda: frozenset[str] = frozenset()
    min_cuda: str | None = None

    def takes_cuda(self, version: str) -> bool:
        if self.cuda and version not in self.cuda:
            return False
        return self.min_cuda is None or _version(version) >= _version(self.min_cuda)


# How many GPUs our own pods hold: (gpu, cloud, center) -> number.
Held = Mapping[tuple[str, str, str], int]


@dataclass(frozen=True)
class Catalog:
    """The catalog under the switches `stock`, `cuda` and `stale_high`."""

    stock: Mapping[str, Any]
    cuda: Mapping[str, list[str]]
    held: Held
    stale_high: bool | list[str] = False

    def is_stale(self, gpu: Gpu) -> bool:
        """Whether the catalog says HIGH of what nobody gets."""
        return self.stale_high is True or (
            isinstance(self.stale_high, list) and gpu.id in self.stale_high
        )

    def versions(self, gpu: Gpu, center: str) -> list[str]:
        """The CUDA versions of this GPU's hosts there; AMD reports none."""
        return self.cuda.get(gpu.id) or (
            [CENTERS[center].cuda] if gpu.manufacturer == "NVIDIA" else []
        )

    def free(self, gpu: Gpu, cloud: str, center: str) -> int:
        """How many GPUs a pod could get there."""
        if gpu.price(cloud) is None:
            return 0
        if gpu.id not in self.stock:
            return PLENTY - self.held.get((gpu.id, cloud, center), 0)
        stock = self.stock[gpu.id].get(cloud, 0)
        if isinstance(stock, dict):
            return int(stock.get(center, 0)) - self.held.get((gpu.id, cloud, center), 0)
        return int(stock) - sum(self.held.get((gpu.id, cloud, each), 0) for each in gpu.centers)

    def places(self, gpu: Gpu, wish: Wish) -> Iterable[tuple[str, str | None, int]]:
        """(center, CUDA version, free GPUs) that fit the wish; the number may be too small."""
        for center in gpu.centers:
            if wish.centers and center not in wish.centers:
                continue
            if wish.countries and CENTERS[center].country not in wish.countries:
                continue
            versions = self.versions(gpu, center)
            fitting = sorted(filter(wish.takes_cuda, versions), key=_version)
            if fitting or not (versions or wish.cuda or wish.min_cuda):
                version = fitting[-1] if fitting else None
                yield center, version, self.free(gpu, wish.cloud, center)

    def place(self, gpu: Gpu, wish: Wish) -> tuple[str, str | None] | None:
        """The center and CUDA version that a new pod gets, None when it finds no room."""
        rooms = [] if self.is_stale(gpu) else self.places(gpu, wish)
        return next(((where, cuda) for where, cuda, free in rooms if free >= wish.count), None)

    def gpu_row(self, gpu: Gpu, wish: Wish | None) -> dict[str, Any]:
        """The row of the API; a wish adds the availability."""
        row: dict[str, Any] = {
            "id": gpu.id,
            "name": gpu.name,
            "pool": gpu.pool,
            "manufacturer": gpu.manufacturer,
            "memory": gpu.memory,
            "secure": gpu.secure is not None,
            "community": gpu.community is not None,
            "price": {"secure": float(gpu.secure or 0), "community": float(gpu.community or 0)},
            "maxCount": {"secure": 8 if gpu.secure else 0, "community": 4 if gpu.community else 0},
        }
        if wish is None:
            return row
        levels = {where: self.level(gpu, free, wish) for where, _, free in self.places(gpu, wish)}
        row["availability"] = max(levels.values(), key=LEVELS.index, default="NONE")
        centers = [
            {"id": where, "name": CENTERS[where].name, "availability": level}
            for where, level in levels.items()
            if level != "NONE"
        ]
        if centers:
            row["dataCenters"] = centers
        if versions := self._cuda_rows(gpu, wish):
            row["cudaVersions"] = versions
        return row

    def level(self, gpu: Gpu, free: int, wish: Wish) -> str:
        """The word for that many free GPUs."""
        if self.is_stale(gpu) and gpu.price(wish.cloud) is not None:
            return "HIGH"
        pods = free // wish.count
        return "NONE" if pods <= 0 else "LOW" if pods <= 2 else "MEDIUM" if pods <= 8 else "HIGH"

    def _cuda_rows(self, gpu: Gpu, wish: Wish) -> list[dict[str, Any]]:
        rows: dict[str, bool] = {}
        for center, _, free in self.places(gpu, wish):
            for version in filter(wish.takes_cuda, self.versions(gpu, center)):
                there = self.level(gpu, free, wish) != "NONE"
                rows[version] = rows.get(version, False) or there
        return [{"version": each, "available": rows[each]} for each in sorted(rows, key=_version)]


LEVELS = ["NONE", "LOW", "MEDIUM", "HIGH"]


def _version(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return int(major), int(minor or 0)
