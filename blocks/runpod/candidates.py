"""Which machines to ask for, in order: the task file's GPUs × cloud tiers × data centers.

The user's order of GPUs comes first, then the cheaper tier, then where most are free. What costs
too much or is marked as taken is left out; the catalog may be behind, so each create call can
still be refused, and the next candidate is asked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from blocks.cloud import PodOrder
from runner.errors import ConfigError, NoCapacity

TIERS = ("SECURE", "COMMUNITY")
LEVELS = ("HIGH", "MEDIUM", "LOW")
MOST = 12  # create calls for one pod; a list of twenty GPUs in thirty places would take an hour

# USD per GB and month, both while the pod runs.
DISK_RATE = 0.10
# Of a network volume: what is below and what is above a terabyte.
VOLUME_RATE, LARGE_VOLUME_RATE = 0.07, 0.05
VOLUME_STEP = 1000
HOURS_PER_MONTH = 720


@dataclass(frozen=True)
class Candidate:
    """One create call: `count` GPUs of a kind in a tier; `data_center` None is any. USD per hour,
    storage included.
    """

    gpu: str
    count: int
    tier: str
    data_center: str | None
    price_per_hour: float

    @property
    def place(self) -> str:
        """What to avoid when this one turned out dead."""
        return place(self.gpu, self.tier, self.data_center)

    def is_avoided(self, places: Collection[str]) -> bool:
        """Whether it, or for one without a data center any machine of its kind, is in `places`."""
        if self.data_center:
            return self.place in places
        return any(each.startswith(f"{self.gpu} / {self.tier} /") for each in places)


def place(gpu: str, tier: str, data_center: str | None) -> str:
    """A kind of machine in words."""
    return f"{gpu} / {tier} / {data_center or 'any'}"


def candidates(
    catalog: Mapping[str, Sequence[Mapping[str, Any]]], order: PodOrder
) -> list[Candidate]:
    """What to ask for, best first, at most MOST; NoCapacity with the reason when there is nothing.

    `catalog` holds the catalog's rows for each tier that was asked. ConfigError names a GPU that
    RunPod does not have, with those that it has.
    """
    if not order.gpus:
        raise ConfigError(
            "runner.gpu: name at least one GPU for RunPod, such as `gpu: NVIDIA A40`; "
            f"it has {_names(catalog)}"
        )
    found: list[Candidate] = []
    dear: list[str] = []
    for gpu in order.gpus:
        offers = list(_offers(catalog, gpu, order))
        if not any(_row(rows, gpu) for rows in catalog.values()):
            raise ConfigError(f"RunPod has no GPU {gpu!r}; it has {_names(catalog)}")
        for offer in sorted(offers, key=lambda offer: offer.price_per_hour):
            if offer.price_per_hour > order.max_price_per_hour:
                dear.append(f"{offer.gpu} ({offer.tier.lower()}) ${offer.price_per_hour:.2f}")
            elif not offer.is_avoided(order.avoid):
                found.append(offer)
    if not found:
        raise NoCapacity(_why_none(order, dear))
    return found[:MOST]


def prices(catalog: Mapping[str, Sequence[Mapping[str, Any]]], order: PodOrder) -> dict[str, float]:
    """USD per hour with each of the order's GPUs that RunPod has within the price limit, whether or
    not one is free now.
    """
    found: dict[str, float] = {}
    for gpu in order.gpus:
        rows = {tier: _row(rows, gpu) for tier, rows in catalog.items()}
        costs = [
            price
            for tier, row in rows.items()
            if row and row.get(tier.lower()) and (price := _price(row, tier, order)) is not None
        ]
        if costs and min(costs) <= order.max_price_per_hour:
            found[gpu] = min(costs)
    return found


def storage_price(gigabytes: float) -> float:
    """USD per hour for the container's disk and the pod's own volume together.

    A network volume is billed apart, with or without a pod.
    """
    return gigabytes * DISK_RATE / HOURS_PER_MONTH


def network_volume_price(gigabytes: float) -> float:
    """USD per hour for a network volume of this size, of the standard kind."""
    full = min(gigabytes, VOLUME_STEP) * VOLUME_RATE
    return (full + max(0.0, gigabytes - VOLUME_STEP) * LARGE_VOLUME_RATE) / HOURS_PER_MONTH


def tiers_of(order: PodOrder) -> tuple[str, ...]:
    """The tiers to ask the catalog about; network volumes exist in the secure one alone."""
    if order.network_volume:
        return ("SECURE",)
    return TIERS if order.cloud_type == "ALL" else (order.cloud_type,)


def _offers(
    catalog: Mapping[str, Sequence[Mapping[str, Any]]], gpu: str, order: PodOrder
) -> Iterator[Candidate]:
    for tier, rows in catalog.items():
        row = _row(rows, gpu)
        if row is None or not row.get(tier.lower()):
            continue
        price = _price(row, tier, order)
        if price is None:
            continue
        for center in _centers(row, order):
            yield Candidate(str(row["id"]), order.gpu_count, tier, center, price)


def _price(row: Mapping[str, Any], tier: str, order: PodOrder) -> float | None:
    """Of the pod with its disks; None where no machine has as many GPUs."""
    if order.gpu_count > (row.get("maxCount") or {}).get(tier.lower(), order.gpu_count):
        return None
    storage = order.disk_gb + (0 if order.network_volume else order.volume_gb)
    price = float(row["price"][tier.lower()]) * order.gpu_count + storage_price(storage)
    return round(price, 4)


def _centers(row: Mapping[str, Any], order: PodOrder) -> list[str | None]:
    """Where to ask, the fullest stock first; any place where the catalog names none."""
    if row.get("availability") == "NONE":
        return []
    listed = {str(c["id"]): str(c["availability"]) for c in row.get("dataCenters") or []}
    wanted = order.data_centers or tuple(listed)
    if not listed:
        return [*order.data_centers] or [None]
    open_ones = [center for center in wanted if listed.get(center) in LEVELS]
    return sorted(open_ones, key=lambda center: LEVELS.index(listed[str(center)]))


def _row(rows: Sequence[Mapping[str, Any]], gpu: str) -> Mapping[str, Any] | None:
    """The row of a GPU by its id or its short name, in any case."""
    wanted = gpu.casefold()
    by = (row for row in rows if wanted in (row["id"].casefold(), row["name"].casefold()))
    return next(by, None)


def _why_none(order: PodOrder, dear: Sequence[str]) -> str:
    gpus = ", ".join(order.gpus)
    asked = f"{order.gpu_count} × {gpus}" if order.gpu_count > 1 else gpus
    if dear:
        return (
            f"nothing within max_price_per_hour: {order.max_price_per_hour:g} for {asked}: "
            + ", ".join(dict.fromkeys(dear))
        )
    avoided = " (machines that did not start were passed over)" if order.avoid else ""
    return f"RunPod's catalog shows no free machine for {asked}{avoided}"


def _names(catalog: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    names = sorted({str(row["id"]) for rows in catalog.values() for row in rows})
    return ", ".join(names[:30]) + (", …" if len(names) > 30 else "")
