"""Where a model comes from, as far as only the control side knows: what the parent tells the pod
that publishes it, as a small parameter of the flow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from runner.attempts import AttemptFacts
from runner.report import Rung

REASON_LENGTH = 200


@dataclass(frozen=True)
class PastAttempt:
    """One attempt; steps are 1-based and inclusive, None if there is none. `reason` is said of
    those that did not complete.
    """

    n: int
    outcome: str
    from_checkpoint: int | None = None
    first_step: int | None = None
    last_step: int | None = None
    onset_step: int | None = None
    alarm_step: int | None = None
    rung: Rung | None = None
    reason: str = ""


@dataclass(frozen=True)
class UsedPod:
    """A pod of the run; hours up to now, USD."""

    cloud: str
    place: str
    hours: float
    cost_usd: float


@dataclass(frozen=True)
class Provenance:
    """The run, the commit, its attempts so far, its pods and what they cost; `links` are name to
    address, for everybody to see.
    """

    run: str = ""
    task_file: str = ""
    repository: str | None = None
    commit: str | None = None
    attempts: tuple[PastAttempt, ...] = ()
    pods: tuple[UsedPod, ...] = ()
    cost_usd: float | None = None
    links: Mapping[str, str] | None = None

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def from_plain(plain: Mapping[str, Any] | None) -> Provenance:
    """What `plain` gave; an empty one for None."""
    told = dict(plain or {})
    told["attempts"] = tuple(PastAttempt(**each) for each in told.get("attempts", ()))
    told["pods"] = tuple(UsedPod(**each) for each in told.get("pods", ()))
    return Provenance(**told)


def past_attempts(done: Iterable[AttemptFacts]) -> tuple[PastAttempt, ...]:
    """The attempts of a run for its model's card, from their facts."""
    return tuple(
        PastAttempt(
            n=facts.n,
            outcome=facts.outcome,
            from_checkpoint=facts.from_checkpoint,
            first_step=facts.first_step,
            last_step=facts.last_step,
            onset_step=facts.onset_step,
            alarm_step=facts.alarm_step,
            rung=facts.rung,
            reason="" if facts.outcome == "completed" else facts.reason[:REASON_LENGTH],
        )
        for facts in done
    )
