"""The lease: the control side's sign of life, and the time at which the run's budget is used up.

The parent writes both to the labels of its flow run (tasks/lease.py): `axr.lease`, Unix seconds of
the renewal, and `axr.ends_at`, Unix seconds. The pod looks at whether `axr.lease` changes, by its
own clock, so a clock that is set otherwise there does not matter. An answer that does not come
renews nothing and ends nothing at once: what was known last holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from pod.asking import ask

TIMEOUT = 10.0


@dataclass(frozen=True)
class Lease:
    """The last word of the control side.

    `value` is its `axr.lease` (None: there was none yet), `seen` when the pod first saw that value,
    `ends_at` when the budget is used up (None: no budget, or not known).
    """

    seen: float
    value: float | None = None
    ends_at: float | None = None

    def heard(self, labels: Mapping[str, Any], now: float) -> Lease:
        """This lease after an answer with these labels; an empty `axr.ends_at` lifts the budget."""
        value, ends_at = _number(labels.get("axr.lease")), labels.get("axr.ends_at")
        known = self if ends_at is None else replace(self, ends_at=_number(ends_at))
        if value is None or value == self.value:
            return known
        return replace(known, value=value, seen=now)

    def facts(self) -> dict[str, Any]:
        """As the guard keeps it on the volume."""
        return asdict(self)


def from_facts(facts: Mapping[str, Any] | None, now: float) -> Lease:
    """What the guard kept; a new lease from `now` when there is nothing."""
    if facts is None or _number(facts.get("seen")) is None:
        return Lease(now)
    # A clock that was set back must not make a lease that never lapses.
    seen = min(float(facts["seen"]), now)
    return Lease(seen, _number(facts.get("value")), _number(facts.get("ends_at")))


def read_labels(environment: Mapping[str, str]) -> dict[str, Any] | None:
    """The labels of the run's own flow run; None when the control side does not say."""
    api, run = environment.get("PREFECT_API_URL", "").rstrip("/"), environment.get("AXR_RUN", "")
    if not api or not run:
        return None
    key = environment.get("AXR_TOKEN", "")
    answer = ask("GET", f"{api}/flow_runs/{run}", key, timeout=TIMEOUT)
    if answer.status != 200 or not isinstance(answer.body, dict):
        return None
    labels = answer.body.get("labels")
    return labels if isinstance(labels, dict) else {}


def _number(value: object) -> float | None:
    try:
        return float(value) if value not in (None, "") else None  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
