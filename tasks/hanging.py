"""A trainer that stands still: noticed by its pulse, looked into, ended; the attempt is a `hang`.

The `hang` event is written before anything else is done, so that a follower which dies in the
middle is followed by one that ends the trainer and comes to the same verdict.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from itertools import pairwise

from blocks.logs import log
from pod import events, stacks, trainer
from pod.pace import Hang, Pace
from pod.pulse import read_pulse
from pod.rundir import RunDir
from pod.work import Work
from runner.settings import NEVER
from tasks.starting import Plan, noted

LOOK_EVERY = 0.5  # seconds


class HangWatch:
    """Looks at the pulse of one attempt's trainer, and ends the trainer when it hangs."""

    def __init__(
        self,
        folder: RunDir,
        plan: Plan,
        process: trainer.Trainer,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        orders = noted(folder, plan.n)
        minutes = orders.get("hang_minutes")
        self._folder, self._plan, self._process, self._clock = folder, plan, process, clock
        self._never = minutes == NEVER
        self._pace = Pace(
            resumed=bool(orders.get("from_checkpoint")),
            least=None if minutes is None else 60 * minutes,
        )
        self._work = Work(process.processes, clock=clock)
        self._next = clock()
        for seconds in paces(events.read(folder.events)[0]):
            self._pace.hear(seconds)

    def ended(self, new: Iterable[events.Event]) -> bool:
        """Look, at most every LOOK_EVERY seconds; True when the trainer hung and was ended.

        `new` are the attempt's events since the last look.
        """
        if any(event["kind"] == "hang" for event in new):  # of a follower that died over it
            self._end()
            return True
        now = self._clock()
        if self._never or now < self._next:
            return False
        self._next = now + LOOK_EVERY
        hang = self._pace.look(now, read_pulse(self._folder), busy=self._work.busy())
        if hang is None:
            return False
        self._tell(hang)
        self._end()
        return True

    def _tell(self, hang: Hang) -> None:
        log().error("The trainer hangs: %s", hang.reason)
        events.append(
            self._folder.events,
            "hang",
            self._plan.n,
            hang.step,
            phase=hang.phase,
            seconds=round(hang.seconds, 1),
            usual=hang.usual,
            idle=hang.idle,
            reason=hang.reason,
        )

    def _end(self) -> None:
        for line in stacks.dump(self._process.processes(), self._folder.trainer_log):
            log().error("%s", line)
        try:
            self._process.stop(grace_s=0)  # it can't save: nothing in it moves
        except TimeoutError as stuck:
            log().error("The machine does not let go of it (a disk that is gone?): %s", stuck)


def paces(seen: Iterable[events.Event]) -> list[float]:
    """The seconds that each step took, as far as the training log tells."""
    steps = [event for event in seen if event["kind"] == "step"]
    return [
        (later["t"] - earlier["t"]) / (later["step"] - earlier["step"])
        for earlier, later in pairwise(steps)
        if later["attempt"] == earlier["attempt"] and later["step"] > earlier["step"]
    ]


def remedies(folder: RunDir) -> dict[str, str]:
    """Variables for a trainer that comes after one which hung while it loaded.

    Transfers by xet are known to freeze with the process alive, plain HTTP then works; only the
    environment switches xet off reliably (xet-core issues 800 and 869).
    """
    seen, _ = events.read(folder.events)
    stuck = any(event["kind"] == "hang" and event.get("phase") == "loading" for event in seen)
    return {"HF_HUB_DISABLE_XET": "1"} if stuck else {}
