"""Waiting for a pod that was rented: queued, starting, booting, until its worker has come.

Each phase has its limit, counted from the pod's creation, so a parent that is started again waits
no longer than the first would have. A machine that misses one is dead: the caller gives it back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

from prefect.client.schemas.objects import WorkerStatus

from blocks import shared_look
from blocks.cloud import Cloud, Pod, PodPhase
from blocks.logs import log
from runner.errors import KeyRefused, PodLost, RunnerError, TryAgain
from tasks.api import api
from tasks.standing import remember, remember_loading

LOOK_EVERY = 5.0
# Seconds after the pod's creation. An image of 15 GB comes in 2 to 10 minutes; afterwards the code
# and its packages are fetched, and the worker starts.
LIMITS = {PodPhase.QUEUED: 300.0, PodPhase.STARTING: 1500.0, PodPhase.RUNNING: 2100.0}
LOADING = (PodPhase.QUEUED, PodPhase.STARTING)
KEEP_EVERY = 30.0  # seconds between two notes that a pod still loads
WORDS = {
    PodPhase.QUEUED: "queued",
    PodPhase.STARTING: "fetching the image",
    PodPhase.RUNNING: "booting",
}


class DidNotStart(RunnerError):
    """The pod missed a limit, broke, or is gone: another machine may do better."""


def wait_until_ready(
    cloud: Cloud,
    pod: Pod,
    look_for_worker: Callable[[Pod], bool] | None = None,
    *,
    look: Callable[[], None] = lambda: None,
    sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> None:
    """Return when the pod's worker has reported; DidNotStart when that can't be expected. `look` is
    called at each turn and may raise.
    """
    has_worker = look_for_worker or worker_is_online
    shown: PodPhase | None = None
    loading = _Loading(pod, now)
    while not has_worker(pod):
        phase = _phase(cloud, pod, now)
        loading.saw(phase)
        if phase in (PodPhase.BROKEN, PodPhase.OUTBID):
            raise DidNotStart("it was outbid" if phase is PodPhase.OUTBID else "it is broken")
        if phase and phase is not shown:
            shown = phase
            remember(pod.run, {"stage": f"{WORDS.get(phase, phase)} on {pod.cloud}"})
            log().info("Pod %s on %s: %s", pod.id, pod.cloud, WORDS.get(phase, phase))
        age = (now() - pod.created).total_seconds()
        limit = LIMITS.get(phase or PodPhase.RUNNING, LIMITS[PodPhase.RUNNING])
        if age > limit:
            word = WORDS.get(phase, phase) if phase else "out of sight"
            raise DidNotStart(f"still {word} after {age / 60:.0f} minutes")
        look()
        sleep(LOOK_EVERY)
    loading.saw(PodPhase.RUNNING)
    remember(pod.run, {"stage": ""})


def worker_is_online(pod: Pod) -> bool:
    """Whether this pod's worker has reported to the server since the pod was made."""
    workers = api().read_workers_for_work_pool("pods")
    return any(
        worker.name == f"pod-{pod.run}"
        and worker.status is WorkerStatus.ONLINE
        and worker.last_heartbeat_time is not None
        and worker.last_heartbeat_time > pod.created
        for worker in workers
    )


class _Loading:
    """Keeps until when the pod was seen loading, where that costs less than running: on its bill a
    little late, and exact when it is over.
    """

    def __init__(self, pod: Pod, now: Callable[[], datetime]) -> None:
        self._pod = pod
        self._now = now
        self._last: datetime | None = None
        self._kept = pod.created
        self._over = pod.loading_per_hour is None

    def saw(self, phase: PodPhase | None) -> None:
        """A look that says nothing (None) changes nothing."""
        if self._over or phase is None:
            return
        if phase in LOADING:
            self._last = self._now()
            if (self._last - self._kept).total_seconds() >= KEEP_EVERY:
                self._kept = self._last
                remember_loading(self._pod, self._last)
        else:
            self._over = True
            remember_loading(self._pod, self._last, has_run=phase is PodPhase.RUNNING)


def _phase(cloud: Cloud, pod: Pod, now: Callable[[], datetime]) -> PodPhase | None:
    """What the cloud says; None when it can't say now."""
    try:
        return shared_look.status_of(pod, cloud, now=lambda: now().timestamp()).phase
    except (TryAgain, KeyRefused):  # a refused key shows nothing either
        return None
    except PodLost as gone:
        raise DidNotStart(str(gone)) from gone
