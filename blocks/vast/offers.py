"""Which offers to take, in order: the search for an order, and the ranking of what it finds.

The user's order of GPUs comes first, then the price with storage, then what traffic costs. A name
that RunPod uses for a GPU is understood too, so that one list serves both clouds.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from blocks.cloud import PodOrder
from blocks.image import min_cuda
from runner.errors import ConfigError, NoCapacity

LEAST_RELIABILITY = 0.95
LEAST_BID = 0.001  # USD per hour
# Above the least bid that wins now: bids are paid as they are, so the highest would be the dearest.
BID_MARGIN = 1.2
SPARE_HOURS = 1.0  # the host's contract shall outlast the run
LEAST_DISK_GB = 10
# Names of chips that differ by more than blanks and the maker.
_CHIPS = {
    "A100 80GB PCIE": "A100 PCIE",
    "A100-SXM4-80GB": "A100 SXM4",
    "A100-SXM4-40GB": "A100 SXM4",
    "H100 80GB HBM3": "H100 SXM",
    "H100 SXM5": "H100 SXM",
    "H200 SXM": "H200",
    "H100 PCIE": "H100 PCIE",
    "RTX PRO 6000 BLACKWELL SERVER EDITION": "RTX PRO 6000 S",
}
# Places of RunPod begin so; the country stands behind.
_CONTINENTS = ("EU", "EUR", "AP", "OC", "SEA")


@dataclass(frozen=True)
class Candidate:
    """One offer to take; `bid` for the whole machine, None for on demand. USD per hour, storage
    included in `price_per_hour` and not in `bid`; traffic in USD per GB, both ways together.
    """

    offer: int
    machine: int
    gpu: str
    price_per_hour: float
    bid: float | None
    traffic: float
    reliability: float

    @property
    def key(self) -> tuple[int, float | None]:
        """What need not be tried twice."""
        return self.offer, self.bid

    @property
    def place(self) -> str:
        """What to avoid when this one turned out dead: the machine, not only this offer of it."""
        return place(self.machine)


def place(machine: object) -> str:
    """A machine in words."""
    return f"machine {machine}"


def query(order: PodOrder) -> dict[str, Any]:
    """The filters of a search; ConfigError when no GPU is named.

    Prices are not among them, so that it can be said what would have been too dear.
    """
    if not order.gpus:
        raise ConfigError("runner.gpu: name at least one GPU for Vast, such as `gpu: RTX A5000`")
    filters: dict[str, Any] = {
        "gpu_name": {"in": list(dict.fromkeys(gpu_name(gpu) for gpu in order.gpus))},
        "num_gpus": {"eq": order.gpu_count},
        "disk_space": {"gte": disk_gb(order)},
        "reliability": {"gte": LEAST_RELIABILITY},
        "duration": {"gte": (order.hours + SPARE_HOURS) * 3600},
    }
    cuda = min_cuda(order)
    wanted = {
        "cpu_cores_effective": order.min_vcpu,
        "cpu_ram": order.min_ram_gb and order.min_ram_gb * 1000,
        "inet_down": order.min_download,
        "inet_up": order.min_upload,
        "cuda_max_good": cuda and float(cuda),
    }
    filters |= {name: {"gte": least} for name, least in wanted.items() if least}
    if order.data_centers:
        filters["geolocation"] = {"in": sorted({country(each) for each in order.data_centers})}
    if order.cloud_type == "SECURE":
        filters["datacenter"] = {"eq": True}
    return filters


def candidates(
    found: Sequence[Mapping[str, Any]],
    order: PodOrder,
    tried: Collection[tuple[int, float | None]] = (),
) -> list[Candidate]:
    """What to take, best first; NoCapacity with the reason when there is nothing.

    `tried` holds offers with the bid that was made; at another bid they may be had.
    """
    open_ones: list[Candidate] = []
    dear: list[str] = []
    for offer in found:
        candidate = _candidate(offer, order)
        if candidate is None or candidate.price_per_hour > order.max_price_per_hour:
            dear.append(_why_dear(offer, order))
        elif (
            candidate.place not in order.avoid
            and candidate.key not in tried
            and float(offer.get("gpu_ram") or 0) >= _least_ram(order, candidate.gpu)
        ):
            open_ones.append(candidate)
    if not open_ones:
        raise NoCapacity(_why_none(order, dear))
    names = [gpu_name(gpu) for gpu in order.gpus]
    best_first = sorted(
        open_ones,
        key=lambda one: (
            names.index(one.gpu) if one.gpu in names else len(names),
            round(one.price_per_hour, 3),
            one.traffic,
            -one.reliability,
        ),
    )
    if not order.spot:
        return best_first
    # Where one bid does not win, the same bid for the machine's next GPU does not either.
    of_machines: dict[int, Candidate] = {}
    for one in best_first:
        of_machines.setdefault(one.machine, one)
    return list(of_machines.values())


def prices(found: Sequence[Mapping[str, Any]], order: PodOrder) -> dict[str, float]:
    """USD per hour with each of the order's GPUs that is on offer within the price limit."""
    best: dict[str, float] = {}
    for gpu in order.gpus:
        of_it = [offer for offer in found if offer["gpu_name"] == gpu_name(gpu)]
        with suppress(NoCapacity):
            open_ones = candidates(of_it, replace(order, gpus=(gpu,)))
            best[gpu] = open_ones[0].price_per_hour
    return best


def disk_gb(order: PodOrder) -> int:
    """The one disk of an instance, for its container and for what is the volume elsewhere."""
    return max(order.disk_gb + order.volume_gb, LEAST_DISK_GB)


def gpu_name(name: str) -> str:
    """A GPU as Vast calls it: `NVIDIA GeForce RTX 4090` and `RTX_4090` are `RTX 4090`."""
    words = " ".join(name.replace("_", " ").split())
    short = re.sub(r"^(NVIDIA|GeForce|Tesla)\s+", "", words, flags=re.IGNORECASE)
    short = re.sub(r"^GeForce\s+", "", short, flags=re.IGNORECASE)
    ada = re.fullmatch(r"(RTX \d+)\s*Ada( Generation)?", short, flags=re.IGNORECASE)
    if ada:
        return f"{ada[1].upper()}Ada"
    return _CHIPS.get(short.upper(), short)


def country(center: str) -> str:
    """The country of a place: `RO` of RunPod's `EU-RO-1`, `US` of `US-KS-2` and of `us`."""
    parts = center.upper().split("-")
    return parts[1] if len(parts) > 1 and parts[0] in _CONTINENTS else parts[0]


def _candidate(offer: Mapping[str, Any], order: PodOrder) -> Candidate | None:
    """The offer at what we would pay; None when no bid within the limits can win."""
    price, bid = float(offer["dph_total"]), None
    if order.spot:
        storage = price - float(offer["dph_base"])
        bid = _bid(float(offer["min_bid"]), storage, order)
        if bid is None:
            return None
        price = bid + storage
    return Candidate(
        offer=int(offer["id"]),
        machine=int(offer["machine_id"]),
        gpu=str(offer["gpu_name"]),
        price_per_hour=round(price, 4),
        bid=bid,
        traffic=float(offer.get("inet_down_cost") or 0) + float(offer.get("inet_up_cost") or 0),
        reliability=float(offer.get("reliability2") or 0),
    )


def _bid(least: float, storage: float, order: PodOrder) -> float | None:
    """USD per hour for the whole machine: a margin above what wins now, within both limits."""
    limits = [least * BID_MARGIN, order.max_price_per_hour - storage]
    if order.max_bid_per_gpu is not None:
        limits.append(order.max_bid_per_gpu * order.gpu_count)
    bid = max(round(min(limits), 4), LEAST_BID)
    return bid if bid >= least and bid <= min(limits[1:]) + 1e-9 else None


def _least_ram(order: PodOrder, gpu: str) -> float:
    """MB that a GPU must have: Vast's `A100 SXM4` has 40 or 80 GB, RunPod's names say which."""
    sizes = [
        int(size) * 1000 * 0.95
        for name in order.gpus
        if gpu_name(name) == gpu
        for size in re.findall(r"(\d+)\s?GB", name)[:1] or ["0"]
    ]
    return min(sizes, default=0.0)


def _why_dear(offer: Mapping[str, Any], order: PodOrder) -> str:
    if order.spot:
        return f"{offer['gpu_name']} from ${float(offer['min_bid']):.2f}"
    return f"{offer['gpu_name']} ${float(offer['dph_total']):.2f}"


def _why_none(order: PodOrder, dear: Sequence[str]) -> str:
    gpus = ", ".join(gpu_name(gpu) for gpu in order.gpus)
    asked = f"{order.gpu_count} × {gpus}" if order.gpu_count > 1 else gpus
    if dear:
        limit = f"max_price_per_hour: {order.max_price_per_hour:g}"
        if order.spot and order.max_bid_per_gpu is not None:
            limit += f" and max_bid_per_gpu: {order.max_bid_per_gpu:g}"
        return f"nothing within {limit} for {asked}: " + ", ".join(list(dict.fromkeys(dear))[:8])
    avoided = " (machines that did not start were passed over)" if order.avoid else ""
    return f"Vast has no offer for {asked} that fits{avoided}"
