"""What the sweep does about one pod, decided from what is known; nothing is done here."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from runner.deadlines import Deadline
from runner.errors import Outcome

# A run and its pod are ended by the run's own parent; the sweep only sees to what is left of that.
ENDS_WITHIN = timedelta(seconds=60)


@dataclass(frozen=True)
class Leave:
    """Nothing is to be done; the note is for the table."""

    note: str = ""


@dataclass(frozen=True)
class Tell:
    """People are told that the pod is idle."""

    note: str


@dataclass(frozen=True)
class EndPod:
    """The pod is given back: its run is over, or there is none."""

    note: str


@dataclass(frozen=True)
class EndRun:
    """The run is ended with this outcome, and its pod with it."""

    outcome: Outcome
    note: str


Verdict = Leave | Tell | EndPod | EndRun


@dataclass(frozen=True)
class Standing:
    """How a pod's run stands. `kept`: the pod outlives it on purpose (`one_shot: false`);
    `left_to_guard`: the pod holds the only copy of what was trained, and its guard saves it.
    """

    known: bool = True
    foreign: bool = False
    ended: datetime | None = None
    decided: bool = False
    kept: bool = False
    left_to_guard: bool = False
    training: bool = False

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.ended is not None


def judge(
    run: Standing,
    first: Deadline | None,
    idle: Literal["tell", "end"] | None,
    idle_minutes: float,
    now: datetime,
) -> Verdict:
    """What to do about a pod; `first` is the earliest deadline of the run and its pod.

    A run that is not over is never left without its pod: it is ended, and the pod with it.
    """
    if run.foreign:
        return Leave("of another installation, left alone")
    if not run.known:
        return EndPod("its run is unknown here")
    if first and now >= first.at:
        return _at_deadline(run, first, now)
    if run.over and run.left_to_guard:
        return Leave("holds the only copy of a model: its guard saves it and ends the pod")
    if run.ended and not run.kept:
        # What a killed parent began is finished by Prefect's hook at the same time.
        if now < run.ended + ENDS_WITHIN:
            return Leave("its run is ending")
        return EndPod("its run has ended")
    if idle == "end":
        return _at_idle_end(run, f"idle for {idle_minutes:g} minutes")
    if idle == "tell":
        return Tell(f"idle; it is ended after {idle_minutes:g} minutes of that")
    return Leave("kept after its run" if run.over else "")


def _at_deadline(run: Standing, first: Deadline, now: datetime) -> Verdict:
    if run.over:
        return EndPod(first.why)
    if run.decided or now < first.at + ENDS_WITHIN:
        return Leave("its run is ending")
    return EndRun(first.outcome, first.why)


def _at_idle_end(run: Standing, why: str) -> Verdict:
    if run.over:
        return EndPod(why)
    if run.decided:
        return Leave("its run is ending")
    if run.training:
        return EndRun("hang", f"its pod was {why} in the middle of a training")
    return EndRun("crash", f"its pod was {why}, and nothing went on there")
