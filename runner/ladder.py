"""What to do after an attempt that did not complete: the next rung, or stop and say why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runner.attempts import AttemptFacts
from runner.errors import Outcome
from runner.report import Rung
from runner.settings import ResumeSettings

# Outcomes that another attempt from a healthy checkpoint can mend. The rest is decided.
RESUMABLE: frozenset[Outcome] = frozenset(
    {"loss_spike", "nonfinite", "collapse", "out_of_memory", "hang", "preempted", "crash"}
)


@dataclass(frozen=True)
class NextAttempt:
    """The coming attempt: its number, the checkpoint it starts from (None: from the start), and its
    rung.
    """

    n: int
    from_checkpoint: int | None = None
    before: int | None = None
    rung: Rung | None = None


FIRST = NextAttempt(1)


@dataclass(frozen=True)
class Stop:
    """No further attempt; `reason` is one line for the user."""

    reason: str


def next_attempt(
    attempts: Sequence[AttemptFacts], settings: ResumeSettings, *, asked_after: int = 0
) -> NextAttempt | Stop:
    """Decide what follows `attempts` (oldest first, the last one not completed).

    `settings.max_attempts` counts resumptions, so a run has at most 1 + max_attempts attempts; it
    counts anew when somebody asked to resume after attempt `asked_after`. No progress ends it: two
    attempts in a row that failed by the same cause at the same step.
    """
    last = attempts[-1]
    if last.n == asked_after:
        return _replay(last)
    attempts = attempts[asked_after:]
    if last.outcome not in RESUMABLE:
        return Stop(last.reason)
    if not settings.enabled:
        return Stop(f"{last.reason} (resuming is switched off in the task file)")
    if last.first_step is None and last.outcome in ("crash", "out_of_memory"):
        return Stop(last.reason)  # it never trained a step: starting again would fail the same way
    if len(attempts) > settings.max_attempts:
        return Stop(f"{last.reason}; {settings.max_attempts} resumption(s) did not help")
    if len(attempts) > 1 and _same_wall(attempts[-2], last):
        return Stop(
            f"{last.reason}; no progress: attempt {last.n} ended where attempt {attempts[-2].n} did"
        )
    return _replay(last)


def _replay(last: AttemptFacts) -> NextAttempt:
    return NextAttempt(last.n + 1, pick(last, last.onset_step), last.onset_step, {"kind": "replay"})


def pick(attempt: AttemptFacts, before: int | None) -> int | None:
    """The newest healthy checkpoint before step `before`, None when there is none: start over."""
    usable = [
        checkpoint.step
        for checkpoint in attempt.checkpoints
        if (before is None or checkpoint.step < before)
        and (checkpoint.health == "healthy" or before is None)
    ]
    return max(usable, default=None)


def _same_wall(earlier: AttemptFacts, later: AttemptFacts) -> bool:
    """Both ended by the same cause at the same step, so that a replay can't be told from a loop."""
    if earlier.outcome != later.outcome:
        return False
    where = (earlier.onset_step, earlier.last_step), (later.onset_step, later.last_step)
    return where[0] == where[1]
