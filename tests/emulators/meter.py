"""What a pod costs over time: spans with constant rates, added up by clock hours.

- Times are whole milliseconds.
- Every amount of one pod in one clock hour (UTC) is rounded to a millionth of a dollar, half to
  even. All else (buckets, totals, the bill, the balance) are sums of these, so they agree exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal

HOUR_MS = 3_600_000
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


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
