"""How long a trainer may stand still before it counts as hung, learned from its own pace.

Fed by whoever looks at the pulse: each look says what the pulse is now, and how much time went by
is taken from the looker's monotonic clock. The pulse's own time is never compared with a clock, so
a step of the clock is no hang, and a looker that was away or suspended counts LONGEST_LOOK at most.

    training     the highest of a floor, 10 × the slowest of its usual gaps, 3 × the longest one
                 there was; more while little is known of it
    evaluating   the same, apart: the first one is slow, and what follows it gives no sign of life
    saving       as long as something is written or computed, hours: a slow disk is no hang
    loading      the same: models are downloaded, and a resumed run reads and drops the rows that it
                 has seen, for hours at worst (transformers issue 11284)
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median

from pod.pulse import Phase, Pulse

LONGEST_LOOK = 10.0  # seconds that one look adds at most
WINDOW = 200  # gaps that the usual is taken from
KNOWN = 20  # gaps after which a pace is known
FACTOR = 10.0
LONGEST_FACTOR = 3.0
MINUTES, HOURS = 60.0, 3600.0


@dataclass(frozen=True)
class Limits:
    """Seconds without a sign of life: once the pace is known; known from an earlier process only;
    unknown. `idle`: without any work to be seen either; None: work proves nothing.
    """

    known: float
    heard: float
    unknown: float
    idle: float | None = None


# A rank that waits for another one computes at full load, so work proves nothing in a step. The
# floor is above what healthy trainings were seen to stop for between steps: the shuffling of a new
# epoch, another compilation, a stalled network disk. torch itself gives up on a rank after 30 min.
LIMITS: dict[Phase, Limits] = {
    "training": Limits(10 * MINUTES, 30 * MINUTES, 60 * MINUTES),
    "evaluating": Limits(20 * MINUTES, 60 * MINUTES, 60 * MINUTES),
    "saving": Limits(4 * HOURS, 4 * HOURS, 4 * HOURS, idle=30 * MINUTES),
    "loading": Limits(2 * HOURS, 2 * HOURS, 2 * HOURS, idle=20 * MINUTES),
}
LOADING_RESUMED = 12 * HOURS


@dataclass(frozen=True)
class Hang:
    """The trainer stands still: since when (seconds), where, and the usual seconds a step."""

    seconds: float
    step: int
    phase: Phase
    usual: float | None = None
    idle: bool = False

    @property
    def reason(self) -> str:
        """One line: `no step for 612 s (usual: 1.2 s) at step 24 while training`."""
        usual = f" (usual: {self.usual:.3g} s)" if self.usual is not None else ""
        work = "; nothing was computed, read or written" if self.idle else ""
        return (
            f"no step for {self.seconds:.0f} s{usual} at step {self.step} while {self.phase}{work}"
        )


@dataclass
class _Gaps:
    """Times between two signs of life in one phase."""

    recent: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    longest: float = 0.0

    def note(self, seconds: float) -> None:
        self.recent.append(seconds)
        self.longest = max(self.longest, seconds)

    def allowed(self) -> float:
        if not self.recent:
            return 0.0
        ordered = sorted(self.recent)
        slow = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
        return max(FACTOR * slow, LONGEST_FACTOR * self.longest)


class Pace:
    """Learns a trainer's pace look by look, and tells when it has stood still for too long.

    Args:
        resumed: the attempt starts from a checkpoint.
        least: seconds that take the place of the floor in training, known or not, and the least
            limit elsewhere.
    """

    def __init__(self, *, resumed: bool = False, least: float | None = None) -> None:
        self._resumed = resumed
        self._least = least
        self._gaps: dict[Phase, _Gaps] = {phase: _Gaps() for phase in LIMITS}
        self._per_step: deque[float] = deque(maxlen=WINDOW)
        self._heard: deque[float] = deque(maxlen=WINDOW)
        self._pulse: Pulse | None = None
        self._looked_at: float | None = None
        self._still = self._idle = self._since_step = 0.0

    def hear(self, seconds: float) -> None:
        """What a step took in an earlier attempt, or before this process followed the trainer."""
        if 0 < seconds < HOURS:
            self._heard.append(seconds)

    @property
    def usual(self) -> float | None:
        """Seconds a step usually takes, None when nothing is known."""
        known = self._per_step if len(self._per_step) >= 3 else (*self._heard, *self._per_step)
        return median(known) if known else None

    def look(self, now: float, pulse: Pulse | None, *, busy: bool = True) -> Hang | None:
        """Take in a look at monotonic time `now`; the hang when it is one by now.

        No pulse at all is loading. `busy`: the trainer was seen to compute, read or write lately,
        or it can't be told.
        """
        passed = 0.0 if self._looked_at is None else now - self._looked_at
        passed = max(0.0, min(passed, LONGEST_LOOK))
        self._looked_at = now
        self._still += passed
        self._since_step += passed
        self._idle = 0.0 if busy else self._idle + passed
        if pulse != self._pulse:
            self._take(pulse)
            return None
        phase: Phase = "loading" if pulse is None else pulse.phase
        limits = LIMITS[phase]
        idle = limits.idle is not None and self._idle > max(limits.idle, self._least or 0.0)
        if not idle and self._still <= self.limit(phase):
            return None
        step = 0 if pulse is None else pulse.step
        return Hang(self._idle if idle else self._still, step, phase, self.usual, idle)

    def limit(self, phase: Phase) -> float:
        """Seconds without a sign of life that this phase may have now."""
        gaps, limits = self._gaps[phase], LIMITS[phase]
        if len(gaps.recent) >= KNOWN:
            floor = limits.known
        else:
            floor = limits.heard if len(self._heard) >= KNOWN else limits.unknown
        if phase == "loading" and self._resumed:
            floor = LOADING_RESUMED
        if self._least is not None:
            floor = self._least if phase == "training" else max(floor, self._least)
        learned = gaps.allowed()
        if phase == "training" and self._heard:
            learned = max(learned, FACTOR * median(self._heard))
        return max(floor, learned)

    def _take(self, pulse: Pulse | None) -> None:
        before, self._pulse = self._pulse, pulse
        if before is not None:
            self._gaps[before.phase].note(self._still)
        self._still = self._idle = 0.0
        if pulse is None or (before is not None and pulse.step == before.step):
            return
        if before is not None and before.phase == pulse.phase == "training":
            steps = pulse.step - before.step
            if steps > 0:
                self._per_step.append(self._since_step / steps)
        self._since_step = 0.0
