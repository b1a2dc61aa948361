"""Which alarms are one and the same trouble that comes back, and how often it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runner.attempts import AttemptFacts
from runner.errors import Outcome

ALARMS: frozenset[Outcome] = frozenset({"loss_spike", "nonfinite", "collapse"})
# Steps: a jump must last so many log entries (the detector's default patience), so that of two
# alarms so near to each other nobody can say that training went on well in between.
LEAST_DELAY = 4


@dataclass(frozen=True)
class Trouble:
    """Steps `onset` to `alarm` (over all times it came), and how often it has come back."""

    onset: int
    alarm: int
    returns: int = 0


def trouble(attempts: Sequence[AttemptFacts]) -> Trouble | None:
    """The trouble that the newest alarm among `attempts` (oldest first) belongs to.

    A later alarm is the same trouble when its onset does not lie beyond the earlier alarm by more
    than the time that the detector took. Attempts that ended otherwise (a crash, a lost pod)
    decided nothing and are passed over.
    """
    newest: Trouble | None = None
    before: Trouble | None = None
    for attempt in attempts:
        if attempt.outcome not in ALARMS:
            continue
        now = _bounds(attempt)
        if newest is not None and before is not None and _same(before, now):
            onset, alarm = min(newest.onset, now.onset), max(newest.alarm, now.alarm)
            newest = Trouble(onset, alarm, newest.returns + 1)
        else:
            newest = now
        before = now
    return newest


def _bounds(attempt: AttemptFacts) -> Trouble:
    """What broke without an alarm event (no guard) is known by its last step alone."""
    last = attempt.alarm_step or attempt.last_step or 0
    return Trouble(attempt.onset_step or last, last)


def _same(earlier: Trouble, later: Trouble) -> bool:
    delay = max(earlier.alarm - earlier.onset, later.alarm - later.onset, LEAST_DELAY)
    return later.onset <= earlier.alarm + delay
