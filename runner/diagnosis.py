"""Why a run failed, for people: its class, the few lines that tell it, and what to do.

The evidence is a log (the last 256 kB are enough), the outcome and its reason, the exit code and
the error that the trainer itself told. The first cause wins over what follows from it: a rank that
is out of memory makes the others fail in NCCL, and torchrun last of all says that a child failed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pod.logtail import cut, useful
from runner.causes import CAUSES, PODS, UNKNOWN, Cause
from runner.errors import Outcome
from runner.passages import Passage, passages

LINES = 8
SAID = 160  # characters of a reason in a notice
DISK_FULL = "disk full"
SCANNED = 60  # last lines of a log without a traceback
_NAMED = {cause.name: cause for cause in (*CAUSES, *PODS)}
KILLED = (-9, 137)
_NO_WORDS = re.compile(r"[\s^~]*$|Traceback ")
# What may stand in the log of a process that the system killed and is not what killed it.
_OF_KILLED = ("out of GPU memory", "shared memory", "disk full")

# Outcomes that are decisions of ours, or good: their reason says it all.
_NONE: frozenset[Outcome] = frozenset(
    {"completed", "cancelled", "loss_spike", "nonfinite", "collapse", "budget", "deadline"}
)
# What is said of an outcome whose log tells nothing.
_OF_OUTCOME: dict[Outcome, Cause] = {
    "out_of_memory": _NAMED["out of GPU memory"],
    "no_capacity": _NAMED["no capacity"],
    "config_error": Cause("config", "Change the task file as the message says.", final=True),
    "hang": Cause(
        "hang",
        "See the stacks in the log; `resume.hang_minutes` gives a slow step more time.",
    ),
    "preempted": Cause(
        "pod lost",
        "Set `checkpoint_store` (hf://… or s3://…) so that the next pod goes on from there.",
    ),
}


@dataclass(frozen=True)
class Diagnosis:
    """A class of failure, its lines, and one sentence on what to do; `final`: no other attempt or
    machine would do better. `outcome` is what it makes of a run that has trained no step.
    """

    kind: str
    lines: tuple[str, ...]
    advice: str
    final: bool = False
    outcome: Outcome = "crash"

    @property
    def sentence(self) -> str:
        """Class and advice on one line, the advice alone where the class says nothing."""
        return self.advice if self.kind == UNKNOWN.name else f"{self.kind}: {self.advice}"


def from_plain(plain: Mapping[str, Any] | None) -> Diagnosis | None:
    """A diagnosis as it came out of JSON."""
    return None if plain is None else Diagnosis(**{**plain, "lines": tuple(plain["lines"])})


def diagnose(
    outcome: Outcome,
    reason: str,
    log: str = "",
    *,
    error: str = "",
    exit_code: int | None = None,
    of_pod: bool = False,
) -> Diagnosis | None:
    """What ended the run, None for an outcome that needs no diagnosis.

    Args:
        outcome: of the attempt or run.
        reason: its one line.
        log: the end of the log of what failed.
        error: what the trainer itself told of its error: `ValueError: …`.
        exit_code: of the trainer, negative for a signal.
        of_pod: the log is that of a pod's boot.
    """
    if outcome in _NONE:
        return None
    rows = (*PODS, *CAUSES) if outcome == "no_capacity" or of_pod else CAUSES
    told = passages(log)
    passage = _first_hand(told, rows)
    if passage is not None and (cause := _cause(rows, passage.told, passage.frames)):
        return _of_passage(cause, passage)
    if error and (cause := _cause(rows, error)) and not cause.second_hand:
        return _diagnosis(cause, passage.lines if passage else _texts(error), error)
    if passage is None:
        # Who refuses a task file speaks of the file, in whatever words.
        of_reason = PODS if outcome == "config_error" and not log else (*rows, *PODS)
        texts = [(useful(log)[-SCANNED:], rows), ([reason], of_reason)]
        found = _scanned(texts, reason, killed=exit_code in KILLED)
        if found is not None:
            return found
    if told and (cause := _cause(rows, told[-1].told)):
        return _of_passage(cause, told[-1])
    fallback = _OF_OUTCOME.get(outcome, UNKNOWN)
    lines = passage.lines if passage else _texts(error) or _texts(reason)
    return _diagnosis(fallback, lines, reason)


def in_few_words(reason: str, found: Diagnosis | None) -> str:
    """The reason of a failed run for a notice, whose first 300 characters must do: class, telling
    line, what to do.
    """
    if found is None or found.kind == UNKNOWN.name:
        return reason
    said = reason if len(reason) <= SAID else reason[: SAID - 1] + "…"
    return f"{found.kind}: {said} → {found.advice}"


def _of_passage(cause: Cause, passage: Passage) -> Diagnosis:
    """With the message of the class, which may be an earlier one of the chain."""
    telling = next((line for line in passage.told.split("\n") if cause.matches(line)), None)
    lines = passage.lines
    if (place := cause.place(passage.frames)) and telling is None and place not in lines:
        lines = (cut(place), *lines)
    if telling and cut(telling) not in lines:
        lines = (*lines[:2], cut(telling), *lines[2:])
    return _diagnosis(cause, lines, passage.told)


def _first_hand(told: Sequence[Passage], rows: Sequence[Cause]) -> Passage | None:
    """The error that the others follow from, None when none is told at first hand.

    Of several ranks the first one with a cause that we know; else the last error, for what a
    program told before that did not end it.
    """
    known = [(each, _cause(rows, each.told, each.frames)) for each in told]
    own = [(each, cause) for each, cause in known if cause is None or not cause.second_hand]
    if any(each.rank is not None for each, _ in own):
        return next((each for each, cause in own if cause), own[0][0])
    return own[-1][0] if own else None


def _cause(rows: Sequence[Cause], told: str, frames: str = "") -> Cause | None:
    return next((cause for cause in rows if cause.matches(told, frames)), None)


def _scanned(
    texts: Sequence[tuple[Sequence[str], Sequence[Cause]]], reason: str, *, killed: bool
) -> Diagnosis | None:
    """What plain lines say; of a killed process only what the system kills for."""
    if killed:
        lines = texts[0][0]
        return _in_lines([_NAMED[name] for name in _OF_KILLED], lines) or _diagnosis(
            _NAMED["out of host memory"], _texts(reason), reason
        )
    for second_hand in (False, True):
        for lines, rows in texts:
            some = [cause for cause in rows if cause.second_hand is second_hand]
            if found := _in_lines(some, lines):
                return found
    return None


def _in_lines(rows: Iterable[Cause], lines: Sequence[str]) -> Diagnosis | None:
    """The first row that a line is of, with that line, the last one of its kind, at the end."""
    for cause in rows:
        at = next((n for n in reversed(range(len(lines))) if cause.matches(lines[n])), None)
        if at is not None:
            around = [line for line in lines[max(0, at - 2) : at + 1] if not _NO_WORDS.match(line)]
            return _diagnosis(cause, tuple(map(cut, around)), "\n".join(around))
    return None


def _diagnosis(cause: Cause, lines: Sequence[str], text: str) -> Diagnosis:
    advice = cause.advise(text)
    return Diagnosis(cause.name, _few(lines), advice, cause.final, cause.outcome)


def _few(lines: Sequence[str]) -> tuple[str, ...]:
    kept = [line.rstrip() for line in lines if line.strip()]
    return tuple(kept if len(kept) <= LINES else [*kept[: LINES - 1], "…"])


def _texts(text: str) -> tuple[str, ...]:
    return tuple(cut(line) for line in re.split(r"[\r\n]+", text) if line.strip())
