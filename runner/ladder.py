"""What to do after an attempt that did not complete: the next rung, or stop and say why.

An alarm climbs: each time the same trouble comes back the next rung of `resume.ladder` is tried; a
trouble elsewhere, after real progress, starts at the first rung again. Running out of memory takes
a smaller batch. Whatever decides nothing (a crash, a hang, a lost pod) is followed by what the
attempt was doing. Factors and batch stay as they are until a later rung changes them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from runner.attempts import AttemptFacts
from runner.batch import Batch
from runner.diagnosis import DISK_FULL
from runner.errors import Outcome
from runner.history import Attempts, as_it_was, batch_in_force, kept, overrides, start
from runner.report import Rung
from runner.rungs import REPLAY, SCALED, Factors, factors_in_force, scaled, words
from runner.settings import ResumeSettings
from runner.troubles import ALARMS, trouble

# Outcomes that another attempt from a healthy checkpoint can mend. The rest is decided.
RESUMABLE: frozenset[Outcome] = ALARMS | {"out_of_memory", "hang", "preempted", "crash"}
# A pod that is taken away says nothing about the training, so it costs no resumption; the run's
# hours and budget bound it too.
MOST_PODS_LOST = 40


def _unscaled() -> Factors:
    return dict.fromkeys(SCALED, 1.0)


@dataclass(frozen=True)
class NextAttempt:
    """The coming attempt.

    It starts from `from_checkpoint` (None: from the start), the newest healthy one before step
    `before`; the pod, which sees the files, has the last word in that. `factors` are absolute,
    `overrides` are keys of axolotl with the values that stay from now on, `why` is the trouble
    that it comes after, and `last` says that no further attempt would follow. `elsewhere`: the pod
    of the attempt before is gone, and what was stored is not known here.
    """

    n: int
    from_checkpoint: int | None = None
    before: int | None = None
    rung: Rung | None = None
    factors: Factors = field(default_factory=_unscaled)
    overrides: dict[str, int] = field(default_factory=dict)
    why: str = ""
    last: bool = False
    elsewhere: bool = False

    @property
    def what(self) -> str:
        """In words, such as `from checkpoint 20: skipping steps 24-28`."""
        begin = f"checkpoint {self.from_checkpoint}" if self.from_checkpoint else "the start"
        if self.elsewhere:
            begin = "the newest stored checkpoint, on another pod"
        return f"from {begin}: {words(self.rung)}"


FIRST = NextAttempt(1)


@dataclass(frozen=True)
class Stop:
    """No further attempt; `reason` is one line for the user.

    `kept` is the last healthy checkpoint's path from the run's folder, None when there is none.
    """

    reason: str
    kept: str | None = None


def next_attempt(
    attempts: Attempts,
    settings: ResumeSettings,
    *,
    batch: Batch | None = None,
    asked_after: int = 0,
) -> NextAttempt | Stop:
    """Decide what follows `attempts` (oldest first, the last one not completed).

    `batch` is the task file's. `settings.max_attempts` counts resumptions, so a run has at most
    1 + max_attempts attempts, and one more for each pod that was lost; it counts anew, and the
    ladder begins anew, when somebody asked to resume after attempt `asked_after`.
    """
    last = attempts[-1]
    if last.n == asked_after:
        return _plan(attempts, as_it_was(attempts), _said(last))
    if last.outcome not in RESUMABLE:
        return Stop(last.reason)
    recent = attempts[asked_after:]
    now = batch_in_force(attempts) or batch or Batch()
    rung = _why_not(attempts, recent, settings) or _rung(attempts, recent, settings, now)
    if isinstance(rung, str):
        return Stop(rung, kept(attempts))
    why = _said(last) + (now.inexact if last.outcome == "out_of_memory" else "")
    return _plan(attempts, rung, why, last=len(_counted(recent)) >= settings.max_attempts)


def _plan(attempts: Attempts, rung: Rung, why: str, *, last: bool = False) -> NextAttempt:
    begin, before = start(attempts)
    return NextAttempt(
        n=attempts[-1].n + 1,
        from_checkpoint=begin,
        before=before,
        rung=rung,
        factors=factors_in_force([*(each.rung for each in attempts), rung]),
        overrides=overrides(attempts, rung),
        why=why,
        last=last,
        elsewhere=attempts[-1].outcome == "preempted",
    )


def _counted(attempts: Attempts) -> Attempts:
    """Those that max_attempts counts."""
    return [each for each in attempts if each.outcome != "preempted"]


def _why_not(attempts: Attempts, recent: Attempts, settings: ResumeSettings) -> str | None:
    """Why no further attempt would help, whatever its rung."""
    last = recent[-1]
    if not settings.enabled:
        return f"{last.reason} (resuming is switched off in the task file)"
    if last.outcome == "crash" and all(each.first_step is None for each in attempts):
        return last.reason  # it never trained a step: starting again would fail the same way
    if last.outcome == "crash" and _fills_the_disk(last):
        return f"{last.reason}; make room, then `axolotl-runner resume`"
    if last.first_step is None and last.diagnosis and last.diagnosis.final:
        return last.reason  # a token, a package or a key is missing: it is missing next time too
    if len(recent) > 1 and _same_wall(recent[-2], last):
        earlier = recent[-2].n
        return f"{last.reason}; no progress: attempt {last.n} ended where attempt {earlier} did"
    return None


def _fills_the_disk(attempt: AttemptFacts) -> bool:
    found = attempt.diagnosis
    return attempt.reason.startswith(DISK_FULL) or (found is not None and found.kind == DISK_FULL)


def _rung(
    attempts: Attempts, recent: Attempts, settings: ResumeSettings, batch: Batch
) -> Rung | str:
    """The rung of the next attempt, or why there is none."""
    last = recent[-1]
    rung: Rung | str
    if last.outcome == "out_of_memory":
        rung = _smaller(attempts, batch)
    elif last.outcome in ALARMS:
        rung = _climbed(attempts, recent, settings)
    else:
        rung = as_it_was(attempts)
    if last.outcome == "preempted":
        lost = len(recent) - len(_counted(recent))
        return rung if lost <= MOST_PODS_LOST else f"{_said(last)}; {lost} pods were lost"
    if isinstance(rung, dict) and len(_counted(recent)) > settings.max_attempts:
        return f"{_said(last)}; {settings.max_attempts} resumption(s) did not help{_tried(recent)}"
    return rung


def _climbed(attempts: Attempts, recent: Attempts, settings: ResumeSettings) -> Rung | str:
    """The ladder's rung for the trouble of the last alarm."""
    found = trouble(recent)
    assert found is not None, "the last attempt ended by an alarm"
    if found.returns >= len(settings.ladder):
        return f"{recent[-1].reason}; no rung of the ladder helped{_tried(recent)}"
    setting = settings.ladder[found.returns]
    if setting == "replay":
        return REPLAY if found.returns else as_it_was(attempts)
    if setting == "skip":
        begin = start(attempts)[0] or 0
        first = max(begin + 1, found.onset - 1)
        return {"kind": "skip", "first": first, "last": max(first, found.alarm)}
    return scaled(setting, factors_in_force(each.rung for each in attempts))


def _smaller(attempts: Attempts, batch: Batch) -> Rung | str:
    """The same again with a smaller batch, or why there is none."""
    said = _said(attempts[-1])
    if len(attempts) > 1 and all(_loading_failed(each) for each in attempts[-2:]):
        return f"{said}: a smaller batch did not help, the model itself does not fit"
    smaller = batch.smaller()
    if smaller is None:
        return f"{said}: micro_batch_size is 1 already"
    again = as_it_was(attempts)
    return {
        **({"kind": "smaller_batch"} if again == REPLAY else again),
        "micro_batch_size": smaller.micro,
        "gradient_accumulation_steps": smaller.accumulation,
    }


def _loading_failed(attempt: AttemptFacts) -> bool:
    """Out of memory while the model was loaded, before the trainer knew its plan."""
    return attempt.outcome == "out_of_memory" and attempt.planned_steps is None


def _said(attempt: AttemptFacts) -> str:
    """The reason of an attempt; out of memory names the step that did not fit."""
    if attempt.outcome != "out_of_memory":
        return attempt.reason
    what = "resume fails with out of memory" if attempt.n > 1 else "out of memory"
    if _loading_failed(attempt) and attempt.first_step is None:
        return f"{what} before the training began"
    return f"{what} at step {(attempt.last_step or attempt.from_checkpoint or 0) + 1}"


def _tried(attempts: Attempts) -> str:
    """What the attempts changed, in brackets."""
    tried = [words(each.rung) for each in attempts if each.rung is not None]
    return f" (tried: {'; '.join(tried)})" if tried else ""


def _same_wall(earlier: AttemptFacts, later: AttemptFacts) -> bool:
    """Both crashed at the same step, so that one more would be a loop.

    Alarms climb the ladder instead, out of memory takes a smaller batch, and a lost pod said
    nothing of where it was.
    """
    if later.outcome in ALARMS or later.outcome in ("out_of_memory", "preempted"):
        return False
    return earlier.outcome == later.outcome and earlier.last_step == later.last_step
