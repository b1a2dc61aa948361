"""The parent's eyes while a child works: is the pod there, is there time and money left?"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from blocks import shared_look
from blocks.cloud import Pod, PodPhase
from blocks.clouds import cloud_of
from runner.errors import KeyRefused, PodLost, TrainingFailed, TryAgain
from tasks.budget import is_too_dear
from tasks.limits import Limits
from tasks.losing import survives
from tasks.ordering import pod_order
from tasks.run import Order, Run
from tasks.standing import remember_pod

LOOK_EVERY = {"local": 2.0}
LOOK_EVERY_RENTED = 10.0
# Clouds raise the price of a living pod seldom, if ever.
PRICE_EVERY = 300.0
LOST = {PodPhase.BROKEN: "is broken", PodPhase.OUTBID: "was outbid"}
# Seconds that a pod in the middle of a run may wait for a machine: one that was stopped has lost
# its GPUs, perhaps for good. Longer where its disk holds all that was trained.
QUEUED_LIMIT, QUEUED_LIMIT_OF_LAST_COPY = 600.0, 3600.0


@dataclass
class Monitor:
    """Called at each turn of the wait; raises when the run must not go on waiting.

    TrainingFailed `deadline` or `budget`; PodLost when a successful look-up does not find the pod,
    when its machine is broken, when somebody has outbid it, when it waits for GPUs for too long, or
    when it has become too dear and the run can go on elsewhere. A stopped container is started
    again. A look-up that fails says nothing, and nothing is concluded. `spare` is how many seconds
    a step that saves the model may pass the end of the budget.
    """

    run: Run
    order: Order
    pod: Pod
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    spare: float = 0.0
    _next: float = field(default=float("-inf"), init=False)
    _next_price: float = field(default=float("-inf"), init=False)
    _queued_since: float | None = field(default=None, init=False)
    _limits: Limits = field(init=False)

    def __post_init__(self) -> None:
        every = LOOK_EVERY.get(self.pod.cloud, LOOK_EVERY_RENTED)
        self._limits = Limits(
            self.run, self.order, every, self.spare, clock=self.clock, now=self.now
        )
        self._next_price = self.clock() + PRICE_EVERY

    def __call__(self) -> None:
        """Look, when it is time to."""
        self._limits()
        if self.clock() < self._next:
            return
        self._next = self.clock() + LOOK_EVERY.get(self.pod.cloud, LOOK_EVERY_RENTED)
        self._check_pod()

    def _check_pod(self) -> None:
        cloud = cloud_of(self.pod)
        try:
            phase = shared_look.status_of(self.pod, cloud, now=self._time).phase
            if phase is PodPhase.STOPPED:
                self._check_price(cloud.create(pod_order(self.run, self.order, self.pod.cloud)))
            if phase in LOST:
                raise PodLost(f"the pod {self.pod.id} on {self.pod.cloud} {LOST[phase]}")
            self._check_queue(phase)
            if self.clock() >= self._next_price:
                self._next_price = self.clock() + PRICE_EVERY
                self._check_price(shared_look.find(self.pod, cloud, now=self._time))
        except (TryAgain, KeyRefused):  # a refused key shows nothing either
            return

    def _time(self) -> float:
        return self.now().timestamp()

    def _check_queue(self, phase: PodPhase) -> None:
        """A stopped pod whose GPUs went to others may wait for ever."""
        if phase is not PodPhase.QUEUED:
            self._queued_since = None
            return
        if self._queued_since is None:
            self._queued_since = self.clock()
        waited = self.clock() - self._queued_since
        if waited > (QUEUED_LIMIT if survives(self.order) else QUEUED_LIMIT_OF_LAST_COPY):
            raise PodLost(
                f"the pod {self.pod.id} on {self.pod.cloud} has waited {waited / 60:.0f} minutes "
                "for its GPUs"
            )

    def _check_price(self, found: Pod | None) -> None:
        """What a pod costs may rise, mostly when it is started again; its bill says so."""
        if found is None or found.price_per_hour <= self.pod.price_per_hour:
            return
        remember_pod(found)
        if not is_too_dear(self.order, found):
            return
        why = (
            f"the pod {found.id} on {found.cloud} costs ${found.price_per_hour:.2f} per hour now, "
            f"more than max_price_per_hour: {self.order.settings.max_price_per_hour:g}"
        )
        if survives(self.order):
            raise PodLost(why)
        raise TrainingFailed("budget", why)
