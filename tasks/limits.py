"""The limits that a run may not pass, whoever looks and whatever it is waiting for.

Each long wait of a parent calls a `Limits` at each turn: it looks whether the user has cancelled,
whether there is time and money left, tells how much of the budget is used, and renews the lease of
the run's pods.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from runner.deadlines import timer_of
from runner.errors import TrainingFailed
from tasks.budget import check_budget, seconds_left, tell_of_budget
from tasks.installation import check_day
from tasks.lease import RENEW_EVERY, renew
from tasks.run import Order, Run
from tasks.standing import cancelled_for, pods_of, recall

# The worker sends the signal of a cancel in 0.1 s; when it comes not, the worker is gone.
SIGNAL_COMES_WITHIN = 10.0
LEAST_PAUSE = 0.5
# Publishing a trained model may pass the end of the budget by this many seconds.
PUBLISHING_TAKES = 600.0


def check_deadline(run: Run, order: Order, now: datetime | None = None) -> None:
    """TrainingFailed `deadline` when the run should be over by now."""
    if (now or datetime.now(UTC)) >= order.deadline(run):
        hours = order.settings.max_hours
        raise TrainingFailed("deadline", f"not done within max_hours: {hours:g}")


def check_timers(run: Run, order: Order, known: Mapping[str, str], now: datetime) -> None:
    """TrainingFailed `deadline` when a pod of the run has had its stop_after or terminate_after.

    Also one that is gone since: its guard ended it for that reason, and another one would be a way
    around the limit.
    """
    for bill in pods_of(known).values():
        created = datetime.fromisoformat(bill["created"])
        timer = timer_of(order.settings, created)
        if timer is None or (bill["terminated"] and created < run.began):
            continue  # of the time before a `resume` of the user
        until = datetime.fromisoformat(bill["terminated"]) if bill["terminated"] else now
        if until >= timer.at:
            raise TrainingFailed("deadline", timer.why)


@dataclass
class Limits:
    """Called at each turn of a wait; raises TrainingFailed `cancelled`, `deadline` or `budget`.

    Looks every `every` seconds, and sooner when the money ends sooner. `spare` is how long a step
    that saves the model may pass the end of the budget, in seconds.
    """

    run: Run
    order: Order
    every: float = 10.0
    spare: float = 0.0
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    _next: float = field(default=float("-inf"), init=False)
    _next_minute: float = field(default=float("-inf"), init=False)

    def __call__(self) -> None:
        """Look, when it is time to."""
        if self.clock() >= self._next:
            self.look()

    def look(self) -> None:
        """Look now."""
        if cancelled_for(self.run.id) > SIGNAL_COMES_WITHIN:
            raise TrainingFailed("cancelled", "cancelled by the user")
        now = self.now()
        check_deadline(self.run, self.order, now)
        known = recall(self.run.id)
        check_timers(self.run, self.order, known, now)
        check_budget(self.run, self.order, known, now, spare=self.spare)
        tell_of_budget(self.run, self.order, known, now)
        if self.clock() >= self._next_minute:
            self._next_minute = self.clock() + RENEW_EVERY
            check_day(self.run, now)
            renew(self.run, self.order, now, known=known, spare=self.spare)
        left = seconds_left(self.order, known, now)
        soon = left is not None and 0 < left < self.every
        self._next = self.clock() + (max(left or 0.0, LEAST_PAUSE) if soon else self.every)
