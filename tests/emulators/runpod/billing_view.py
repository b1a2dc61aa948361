"""GET /v2/billing/pods: the window of a query and its records."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tests.emulators.clock import read_time, write_time
from tests.emulators.meter import Amounts, Meter
from tests.emulators.runpod.billing import bucket_end, bucket_start, buckets
from tests.emulators.runpod.problems import Problem

DEFAULT_WINDOW_S = 30 * 24 * 3600


def pod_billing(
    meters: list[tuple[str, Meter]], query: Mapping[str, str], now: float, lag: float
) -> dict[str, Any]:
    """The answer: `lag` seconds is how often the billing job runs, 0 for always up to date."""
    size = query.get("bucketSize", "day")
    start, end = _window(query, size, now)
    until = now - now % lag if lag else now
    pod_id = query.get("podId")
    chosen = [(pod, meter) for pod, meter in meters if pod_id in (None, pod)]
    found = buckets(chosen, size, start.timestamp(), end.timestamp(), until)
    records = [
        {
            "startTime": write_time(bucket.timestamp()),
            "endTime": write_time(bucket_end(bucket, size).timestamp()),
            "podId": pod,
            **amounts.as_dict(),
        }
        for bucket, pod, amounts in found
    ]
    return {
        "records": records,
        "metadata": {
            "query": {
                "startTime": write_time(start.timestamp()),
                "endTime": write_time(end.timestamp()),
                "bucketSize": size,
                "podId": pod_id,
            },
            "recordCount": len(records),
            "uniquePodCount": len({pod for _, pod, _ in found}),
            "totals": sum((amounts for _, _, amounts in found), Amounts()).as_dict(),
        },
    }


def _window(query: Mapping[str, str], size: str, now: float) -> tuple[datetime, datetime]:
    """Snapped outwards to the buckets."""
    current = bucket_start(now, size)
    if "lastN" in query:
        if "startTime" in query or "endTime" in query:
            raise Problem(400, "lastN excludes startTime and endTime", rule=True)
        start = current
        for _ in range(int(query["lastN"]) - 1):
            start = bucket_start(start.timestamp() - 1, size)
        return start, bucket_end(current, size)
    try:
        first = read_time(query["startTime"]) if "startTime" in query else now - DEFAULT_WINDOW_S
        last = read_time(query["endTime"]) if "endTime" in query else now
    except ValueError as error:
        raise Problem(422, "the request is not valid", [str(error)], rule=True) from error
    start, end = bucket_start(first, size), bucket_start(last, size)
    if end < datetime.fromtimestamp(last, UTC):
        end = bucket_end(end, size)
    return start, end
