"""The bill: spans of a pod's life with their rates, and the records that the API shows of them.

- Times are whole milliseconds; a pod costs from its creation to its end, stopped or not.
- The GPU: its price an hour times their number, while the pod is not stopped.
- Container disk 0.10 USD per GB and month while not stopped; the persistent volume 0.10, stopped
  0.20. A month is 30 days of 24 hours.
- Every amount of one pod in one clock hour (UTC) is rounded to a millionth of a dollar, half to
  even. All else (buckets, totals, the bill, the balance) are sums of these, so they agree exactly.

Not covered: the rent of network volumes, savings plans, a bill that is not in dollars.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal

HOUR_MS = 3_600_000
DISK_MONTH = Decimal("0.10")
STOPPED_VOLUME_MONTH = Decimal("0.20")
MONTH_HOURS = 30 * 24
_STEP = Decimal("0.000001")


@dataclass
class Span:
    """A stretch of time with constant rates, USD per hour; `end` None while it lasts."""

    start: float
    gpu: Decimal
    disk: Decimal
    end: float | None = None


@dataclass(frozen=True)
class Amounts:
    """What an hour or more cost."""

    gpu: Decimal = Decimal(0)
    disk: Decimal = Decimal(0)

    @property
    def total(self) -> Decimal:
        return self.gpu + self.disk

    def __add__(self, other: Amounts) -> Amounts:
        return Amounts(self.gpu + other.gpu, self.disk + other.disk)

    def as_dict(self) -> dict[str, float]:
        """As a billing record has it."""
        return {
            "totalAmount": float(self.total),
            "gpuAmount": float(self.gpu),
            "cpuAmount": 0.0,
            "diskAmount": float(self.disk),
        }


@dataclass
class Meter:
    """One pod's spans, in order."""

    spans: list[Span] = field(default_factory=list)

    def switch(self, now: float, gpu: Decimal, disk: Decimal) -> None:
        """From now on it costs this much."""
        self.close(now)
        self.spans.append(Span(now, gpu, disk))

    def close(self, now: float) -> None:
        """The last span ends."""
        if self.spans and self.spans[-1].end is None:
            self.spans[-1].end = now

    def hours(self, until: float) -> Iterator[tuple[float, Amounts]]:
        """Start and cost of each clock hour that the pod was there for, up to `until`."""
        if not self.spans:
            return
        first, last = _ms(self.spans[0].start), _ms(self._end(until))
        for hour in range(first - first % HOUR_MS, max(last, first + 1), HOUR_MS):
            gpu = disk = Decimal(0)
            for span in self.spans:
                end = until if span.end is None else min(span.end, until)
                overlap = min(_ms(end), hour + HOUR_MS) - max(_ms(span.start), hour)
                if overlap > 0:
                    share = Decimal(overlap) / HOUR_MS
                    gpu, disk = gpu + span.gpu * share, disk + span.disk * share
            yield hour / 1000, Amounts(gpu.quantize(_STEP), disk.quantize(_STEP))

    def total(self, until: float) -> Decimal:
        """USD up to `until`."""
        return sum((amounts.total for _, amounts in self.hours(until)), Decimal(0))

    def _end(self, until: float) -> float:
        end = self.spans[-1].end
        return until if end is None else min(end, until)


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


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
