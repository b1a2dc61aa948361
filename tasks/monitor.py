"""The parent's eyes while a child works: is the pod there, is there time and money left?"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from blocks.cloud import Pod, PodPhase
from blocks.clouds import cloud_of
from runner.errors import PodLost, TrainingFailed, TryAgain
from runner.report import pod_cost
from tasks.limits import check_deadline
from tasks.ordering import pod_order
from tasks.run import Order, Run
from tasks.standing import cancelled_for

LOOK_EVERY = {"local": 2.0}
LOOK_EVERY_RENTED = 10.0
# The worker sends the signal of a cancel in 0.1 s; when it comes not, the worker is gone.
SIGNAL_COMES_WITHIN = 10.0


@dataclass
class Monitor:
    """Called at each turn of the wait; raises when the run must not go on waiting.

    TrainingFailed `deadline` or `budget`; PodLost when a successful look-up does not find the pod.
    A stopped container is started again. A look-up that fails says nothing, and nothing is
    concluded.
    """

    run: Run
    order: Order
    pod: Pod
    spent_before: float = 0.0
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
        spent = self.spent_before + pod_cost(
            self.pod.created, None, self.pod.price_per_hour, self.now()
        )
        if settings.budget is not None and spent >= settings.budget:
            raise TrainingFailed("budget", f"${spent:.2f} spent of budget: {settings.budget:g}")

    def _check_pod(self) -> None:
        cloud = cloud_of(self.pod)
        try:
            phase = cloud.status(self.pod).phase
            if phase is PodPhase.STOPPED:
                cloud.create(pod_order(self.run, self.order, self.pod.cloud))
            if phase is PodPhase.BROKEN:
                raise PodLost(f"the machine of pod {self.pod.id} is broken")
        except TryAgain:
            return
        except PodLost as lost:
            raise TrainingFailed(
                "preempted", f"{lost}; its work since the last stored checkpoint is gone"
            ) from lost
