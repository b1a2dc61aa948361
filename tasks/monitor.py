"""The parent's eyes while a child works: is the pod there, is there time and money left?"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from blocks.cloud import Pod, PodPhase
from blocks.clouds import cloud_of
from runner.errors import PodLost, TrainingFailed, TryAgain
from tasks.limits import check_deadline
from tasks.ordering import pod_order
from tasks.run import Order, Run
from tasks.spending import cost_so_far
from tasks.standing import cancelled_for, recall

LOOK_EVERY = {"local": 2.0}
LOOK_EVERY_RENTED = 10.0
# The worker sends the signal of a cancel in 0.1 s; when it comes not, the worker is gone.
SIGNAL_COMES_WITHIN = 10.0
LOST = {PodPhase.BROKEN: "is broken", PodPhase.OUTBID: "was outbid"}


@dataclass
class Monitor:
    """Called at each turn of the wait; raises when the run must not go on waiting.

    TrainingFailed `deadline` or `budget`; PodLost when a successful look-up does not find the pod,
    when its machine is broken, or when somebody has outbid it. A stopped container is started
    again. A look-up that fails says nothing, and nothing is concluded.
    """

    run: Run
    order: Order
    pod: Pod
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    _next: float = 0.0

    def __call__(self) -> None:
        """Look, when it is time to."""
        if self.clock() < self._next:
            return
        self._next = self.clock() + LOOK_EVERY.get(self.pod.cloud, LOOK_EVERY_RENTED)
        self._check_limits()
        self._check_pod()

    def _check_limits(self) -> None:
        if cancelled_for(self.run.id) > SIGNAL_COMES_WITHIN:
            raise TrainingFailed("cancelled", "cancelled by the user")
        settings = self.order.settings
        check_deadline(self.run, self.order, self.now())
        if settings.budget is None:
            return
        spent = cost_so_far(recall(self.run.id), self.now())
        if spent >= settings.budget:
            raise TrainingFailed("budget", f"${spent:.2f} spent of budget: {settings.budget:g}")

    def _check_pod(self) -> None:
        cloud = cloud_of(self.pod)
        try:
            phase = cloud.status(self.pod).phase
            if phase is PodPhase.STOPPED:
                cloud.create(pod_order(self.run, self.order, self.pod.cloud))
            if phase in LOST:
                raise PodLost(f"the pod {self.pod.id} on {self.pod.cloud} {LOST[phase]}")
        except TryAgain:
            return
