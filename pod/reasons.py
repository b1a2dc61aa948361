"""When a pod must end, whoever else is dead: a pure function of the clock and of what is known.

The control side acts first on all of these, hence the graces. Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pod.lease import Lease

GRACE = 30.0  # seconds; the control side looks every 10 s
FINISHED_GRACE = 600.0

Why = Literal["deadline", "terminate_after", "stop_after", "budget", "finished", "lease"]
# Nothing keeps a pod longer than these.
LAST = ("deadline", "terminate_after")


@dataclass(frozen=True)
class Limits:
    """What this pod may cost: Unix seconds, seconds (inf: never), and whether it is kept."""

    deadline: float
    stop_after: float
    terminate_after: float
    lease: float
    keep: bool


@dataclass(frozen=True)
class Facts:
    """What the guard sees: Unix seconds of this pod's clock.

    `finished` is when the run was published (None: not yet); `heard` whether the control side has
    answered this guard; `settled` whether this guard has waited long enough for it to do so;
    `again` whether the container has been started again.
    """

    began: float
    lease: Lease
    training: bool
    finished: float | None
    heard: bool
    settled: bool
    again: bool = False


def why_end(now: float, facts: Facts, limits: Limits) -> Why | None:
    """Why the pod must end now, the hardest reason first; None while it may live."""
    age = now - facts.began
    ends_at = facts.lease.ends_at
    if now >= limits.deadline + GRACE:
        return "deadline"
    if age >= limits.terminate_after + GRACE:
        return "terminate_after"
    if age >= limits.stop_after + GRACE:
        return "stop_after"
    if (facts.heard or facts.settled) and ends_at is not None and now >= ends_at + GRACE:
        return "budget"
    if limits.keep:
        return None
    if facts.finished is not None and (facts.again or now >= facts.finished + FINISHED_GRACE):
        return "finished"
    lapsed = facts.settled and now - facts.lease.seen >= limits.lease
    return "lease" if lapsed and not facts.training else None


def limits_of(environment: Mapping[str, str]) -> Limits:
    """The limits in a pod's variables. KeyError or ValueError without a deadline."""
    return Limits(
        deadline=float(environment["AXR_DEADLINE"]),
        stop_after=_timer(environment.get("AXR_STOP_AFTER")),
        terminate_after=_timer(environment.get("AXR_TERMINATE_AFTER")),
        lease=float(environment.get("AXR_LEASE") or 900.0),
        keep=environment.get("AXR_KEEP") == "yes",
    )


def _timer(text: str | None) -> float:
    """Seconds; never (inf) without a number or with a negative one."""
    try:
        seconds = float(text or -1)
    except ValueError:
        return float("inf")
    return seconds if seconds >= 0 else float("inf")
