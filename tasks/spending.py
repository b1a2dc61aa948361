"""What a run has cost so far, over all of its pods, and how long its money lasts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from runner.notice import dollars
from runner.report import pod_cost
from tasks.standing import pods_of

MOST_NAMED = 6  # pods in one sentence


def cost_so_far(
    known: Mapping[str, str], now: datetime | None = None, *, since: datetime | None = None
) -> float:
    """USD over all pods of a run's facts, those that live billed until now; with `since`, only what
    was spent after that moment.
    """
    until = now or datetime.now(UTC)
    return sum(_cost(bill, until, since) for bill in pods_of(known).values())


def cost_per_hour(known: Mapping[str, str]) -> float:
    """USD per hour of the pods that are not confirmed gone."""
    living = [bill for bill in pods_of(known).values() if not bill["terminated"]]
    return sum(float(bill["price_per_hour"]) for bill in living)


def used_up_at(known: Mapping[str, str], budget: float, now: datetime) -> datetime | None:
    """When a budget will be used up at the present pods' prices; None where nothing is being paid.

    `now` or earlier when it is used up already.
    """
    per_hour = cost_per_hour(known)
    if per_hour <= 0:
        return None
    left = budget - cost_so_far(known, now)
    # A price of almost nothing must not lead beyond what a datetime can hold.
    return now + timedelta(hours=min(left / per_hour, 24.0 * 3650))


def spent_words(known: Mapping[str, str], now: datetime) -> str:
    """What was spent, and on what: `$5.22: the pod a1 on runpod $5.20, network volume $0.02`."""
    total = cost_so_far(known, now)
    volumes = 0.0
    named: list[str] = []
    for pod, bill in pods_of(known).items():
        cost = _cost(bill, now, None)
        part = _volume_share(bill) * cost
        volumes += part
        named.append(f"the pod {pod} on {bill['cloud']} {dollars(cost - part)}")
    shown = named[:MOST_NAMED]
    if len(named) > len(shown):
        shown.append(f"{len(named) - len(shown)} more pods")
    if volumes:
        shown.append(f"network volume {dollars(volumes)}")
    return f"{dollars(total)} spent" + (f": {', '.join(shown)}" if shown else "")


def cost_of(bill: Mapping[str, Any], until: datetime) -> float:
    """USD that a pod of `pods_of` cost up to a moment.

    While it was seen loading it cost what its cloud takes then, where that is known; else, and
    also where nobody looked, the full price.
    """
    created, ended, loading = (
        datetime.fromisoformat(bill[name]) if bill.get(name) else None
        for name in ("created", "terminated", "loading_until")
    )
    assert created is not None, "a bill says when its pod was created"
    price = float(bill["price_per_hour"])
    idle = bill.get("loading_per_hour")
    volume = float(bill.get("volume_per_hour") or 0.0)
    return pod_cost(
        created,
        min(ended, until) if ended else None,
        price,
        until,
        loading_until=loading,
        loading_per_hour=price if idle is None else min(price, float(idle) + volume),
    )


def _cost(bill: Mapping[str, Any], until: datetime, since: datetime | None) -> float:
    return cost_of(bill, until) - (cost_of(bill, since) if since else 0.0)


def _volume_share(bill: Mapping[str, Any]) -> float:
    """The part of a pod's price that is its network volume's, 0 to 1."""
    price = float(bill["price_per_hour"])
    return float(bill.get("volume_per_hour") or 0.0) / price if price else 0.0
