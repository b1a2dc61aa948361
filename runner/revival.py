"""Whether a dead run is set going again, waited for, or given up.

A run can't be revived when it has stayed dead for 10 minutes, or after 3 revivals, in none of which
it was seen alive. Times are Unix seconds.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Literal

MOST_REVIVALS = 3
DEAD_FOR = 600.0
# A process that was just started takes its lock after a few seconds, on a busy machine later.
STARTS_WITHIN = 60.0
# It may be seen alive each time and die all the same.
MOST_RUNS = 20

LABEL = "death"


@dataclass(frozen=True)
class Death:
    """Since when a run has been dead, and what was done about it; one label of the run."""

    since: float
    revivals: int = 0
    revived: float = 0.0

    def again(self, now: float) -> Death:
        """After one more revival."""
        return replace(self, revivals=self.revivals + 1, revived=now)

    def to_text(self) -> str:
        """As the label holds it."""
        return json.dumps(asdict(self))


def read_death(text: str | None) -> Death | None:
    """What the label says; None when the run was seen alive last."""
    return Death(**json.loads(text)) if text else None


def judge(death: Death, run_count: int, now: float) -> Literal["revive", "wait", "give up"]:
    """What to do about a run that is dead at this look."""
    if now - death.since >= DEAD_FOR or run_count > MOST_RUNS:
        return "give up"
    if death.revivals < MOST_REVIVALS:
        return "revive"
    return "wait" if now - death.revived < STARTS_WITHIN else "give up"
