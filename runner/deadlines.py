"""When a run or a pod must be over, by `max_hours`, `stop_after` and `terminate_after`.

`max_hours` counts from the beginning of the run; the other two, the proof of concept's, in seconds
from the creation of each pod, -1 for never. A stopped pod is billed for its disk, so both end it:
`stop_after` after a checkpoint, `terminate_after` as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from runner.errors import Outcome
from runner.settings import NEVER, RunnerSettings


@dataclass(frozen=True)
class Deadline:
    """A moment, and the reason that a run ends with when it has passed."""

    at: datetime
    why: str
    outcome: Outcome = "deadline"


def first_deadline(settings: RunnerSettings, began: datetime, created: datetime) -> Deadline:
    """The earliest that holds for a pod of `created` of a run that `began`."""
    most = Deadline(
        began + timedelta(hours=settings.max_hours),
        f"not done within max_hours: {settings.max_hours:g}",
    )
    timer = timer_of(settings, created)
    return min(most, timer, key=lambda each: each.at) if timer else most


def earliest(*found: Deadline | None) -> Deadline | None:
    """The first to come of those that there are."""
    return min((each for each in found if each), key=lambda each: each.at, default=None)


def timer_of(settings: RunnerSettings, created: datetime) -> Deadline | None:
    """The earlier one of a pod's two timers, None when it has none."""
    asked = {"stop_after": settings.stop_after, "terminate_after": settings.terminate_after}
    timers = [
        Deadline(created + timedelta(seconds=seconds), f"its pod has had its {name}: {seconds} s")
        for name, seconds in asked.items()
        if seconds is not None and seconds != NEVER
    ]
    return min(timers, key=lambda each: each.at, default=None)
