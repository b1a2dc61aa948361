"""What a pod is doing, and whether it is idle; no cloud and no server is asked here.

Derived from the flow runs on the pod, the trainer's last sign of life, telemetry and time:

- a download, passing over rows, an evaluation and a save are work, however little the GPUs have to
  do;
- telemetry that is missing is unknown: it never counts as idle, and interrupts what was idle;
- between two steps, and while a trainer waits after an alarm to be sent back, a pod isn't idle yet;
- idle is what was seen idle at every look since; looks that are too far apart begin anew.

Times are Unix seconds, percentages 0–100.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

# A sign of life from the pod comes every 15 s, through a server that may be away for a while.
FRESH = 180.0
# What a GPU and a processor do when nobody works with them: drivers, a worker that polls.
QUIET_GPU, QUIET_CPU = 5.0, 10.0
# A parent that died between two steps is back within a minute.
BETWEEN_STEPS = 120.0
# The sweep looks each minute. What happened in a longer gap is unknown.
LOOKS_APART = 300.0


class Activity(StrEnum):
    """What a pod is doing; the words of the table of pods."""

    BOOTING = "booting"
    DOWNLOADING = "downloading"
    FORWARDING = "fast-forwarding"
    TRAINING = "training"
    EVALUATING = "evaluating"
    SAVING = "saving"
    IDLE = "idle"
    UNKNOWN = "unknown"


PHASES = {
    "loading": Activity.DOWNLOADING,
    "forwarding": Activity.FORWARDING,  # a resumed trainer reads and drops the rows it has seen
    "training": Activity.TRAINING,
    "evaluating": Activity.EVALUATING,
    "saving": Activity.SAVING,
}
STEPS = {
    "prepare": Activity.DOWNLOADING,
    "train": Activity.TRAINING,
    "publish": Activity.SAVING,
}


@dataclass(frozen=True)
class Work:
    """One flow run on the pod: prepare, train or publish.

    `since` is when its stage began; `phase` is what its trainer said last, at `phase_at`.
    """

    step: str
    stage: Literal["waiting", "running", "over"]
    since: float
    phase: str | None = None
    phase_at: float | None = None


@dataclass(frozen=True)
class Sight:
    """One look at a pod. `container` None: the cloud can't say now. `has_gpu`: its GPUs decide."""

    container: Literal["starting", "running", "stopped"] | None
    created: float
    work: tuple[Work, ...] = ()
    gpu_percent: float | None = None
    cpu_percent: float | None = None
    has_gpu: bool = True
    run_over: bool = False
    warm_seconds: float = 300.0


def activity(sight: Sight, now: float) -> Activity:
    """What the pod is doing at this look."""
    if sight.container == "starting":
        return Activity.BOOTING
    if sight.container == "stopped":
        return Activity.IDLE  # nothing runs in it, and its disk is paid for
    running = [work for work in sight.work if work.stage == "running"]
    if running:
        return _of_running(running[-1], sight, now)
    if sight.container is None:
        return Activity.UNKNOWN
    return _of_waiting(sight, now)


@dataclass(frozen=True)
class Idle:
    """Since when a pod has been idle, and when it was last seen so; what the next look is told."""

    since: float
    seen: float

    def minutes(self, now: float) -> float:
        """How long it has been idle."""
        return (now - self.since) / 60


def idle_since(before: Idle | None, what: Activity, now: float) -> Idle | None:
    """What is known of a pod's idleness after this look; None when it isn't idle."""
    if what is not Activity.IDLE:
        return None
    if before is None or now - before.seen > LOOKS_APART:
        return Idle(now, now)
    return Idle(before.since, now)


def due(idle: Idle | None, idle_minutes: float, now: float) -> Literal["tell", "end"] | None:
    """What is to be done about it: told after half of `idle_minutes`, ended after all of them."""
    if idle is None or idle.minutes(now) < idle_minutes / 2:
        return None
    return "end" if idle.minutes(now) >= idle_minutes else "tell"


def is_quiet(sight: Sight) -> bool | None:
    """Whether nobody computes there; None when the telemetry that would tell is missing."""
    decides = sight.gpu_percent if sight.has_gpu else sight.cpu_percent
    if decides is None:
        return None
    gpu_is_quiet = sight.gpu_percent is None or sight.gpu_percent < QUIET_GPU
    return gpu_is_quiet and (sight.cpu_percent is None or sight.cpu_percent < QUIET_CPU)


def _of_running(work: Work, sight: Sight, now: float) -> Activity:
    """A flow run that says it is running: its follower may be dead, so training must be seen."""
    if work.step != "train":
        return STEPS.get(work.step, Activity.UNKNOWN)
    if work.phase is None:
        return Activity.DOWNLOADING if now - work.since < FRESH else Activity.UNKNOWN
    said = PHASES.get(work.phase, Activity.UNKNOWN)
    if said is not Activity.TRAINING or now - (work.phase_at or work.since) < FRESH:
        return said
    match is_quiet(sight):
        case True:
            return Activity.IDLE
        case False:
            return Activity.TRAINING
        case None:
            return Activity.UNKNOWN


def _of_waiting(sight: Sight, now: float) -> Activity:
    """A running container in which no flow run works at the moment."""
    over = [work for work in sight.work if work.stage == "over" and work.since >= sight.created]
    if not sight.run_over:
        if not over or any(work.stage == "waiting" for work in sight.work):
            return Activity.BOOTING  # or about to begin the next step; the parent limits both
        last = max(over, key=lambda work: work.since)
        pause = max(BETWEEN_STEPS, sight.warm_seconds if last.step == "train" else 0.0)
        if now - last.since < pause:
            return STEPS.get(last.step, Activity.UNKNOWN)
    return Activity.IDLE if is_quiet(sight) else Activity.UNKNOWN
