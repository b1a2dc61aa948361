"""What a run has cost so far, over all of its pods."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from runner.report import pod_cost
from tasks.standing import pods_of


def cost_so_far(known: Mapping[str, str], now: datetime | None = None) -> float:
    """USD over all pods of a run's facts, those that live billed until now."""
    return sum(
        pod_cost(
            datetime.fromisoformat(bill["created"]),
            datetime.fromisoformat(bill["terminated"]) if bill["terminated"] else None,
            bill["price_per_hour"],
            now or datetime.now(UTC),
        )
        for bill in pods_of(known).values()
    )
