"""The bill: spans of a pod's life with their rates, and the records that the API shows of them.

- A pod costs from its creation to its end, stopped or not.
- The GPU: its price an hour times their number, while the pod is not stopped.
- Container disk 0.10 USD per GB and month while not stopped; the persistent volume 0.10, stopped
  0.20. A month is 30 days of 24 hours.
- Rounding is that of the meter.

Not covered: the rent of network volumes, savings plans, a bill that is not in dollars.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from tests.emulators.meter import Amounts, Meter

DISK_MONTH = Decimal("0.10")
STOPPED_VOLUME_MONTH = Decimal("0.20")
MONTH_HOURS = 30 * 24


def disk_rate(disk_gb: int, volume_gb: int, stopped: bool) -> Decimal:
    """USD per hour of a pod's container disk and persistent volume."""
    if stopped:
        return volume_gb * STOPPED_VOLUME_MONTH / MONTH_HOURS
    return (disk_gb + volume_gb) * DISK_MONTH / MONTH_HOURS


def bucket_start(seconds: float, size: str) -> datetime:
    """Where the bucket that holds this time begins; weeks begin on Monday."""
    day = datetime.fromtimestamp(seconds, UTC).replace(minute=0, second=0, microsecond=0)
    if size == "hour":
        return day
    day = day.replace(hour=0)
    if size == "week":
        return day - timedelta(days=day.weekday())
    if size == "month":
        return day.replace(day=1)
    return day.replace(month=1, day=1) if size == "year" else day


def bucket_end(start: datetime, size: str) -> datetime:
    """Where the bucket that begins here ends."""
    if size in ("month", "year"):
        beyond = start + timedelta(days=32 if size == "month" else 367)
        return bucket_start(beyond.timestamp(), size)
    return start + timedelta(**{f"{size}s": 1})


def buckets(
    meters: Iterable[tuple[str, Meter]], size: str, start: float, end: float, until: float
) -> list[tuple[datetime, str, Amounts]]:
    """(start of the bucket, pod, cost) of all that was there in [start, end), oldest first."""
    sums: dict[tuple[datetime, str], Amounts] = {}
    for pod, meter in meters:
        for hour, amounts in meter.hours(until):
            if start <= hour < end:
                key = (bucket_start(hour, size), pod)
                sums[key] = sums.get(key, Amounts()) + amounts
    return [(bucket, pod, amounts) for (bucket, pod), amounts in sorted(sums.items(), key=_first)]


def _first(item: tuple[tuple[datetime, str], Amounts]) -> tuple[datetime, str]:
    return item[0]
