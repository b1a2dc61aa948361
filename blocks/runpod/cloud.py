"""RunPod behind the Cloud interface.

A create call is never simply repeated: after an answer that decides nothing the pod is looked up by
its name first. "Not found" is believed only of a successful list, and of a new pod only after the
time that RunPod may take to show it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from blocks.cloud import INSTALLATION, NAME_PREFIX, Pod, PodOrder, PodPhase, PodStatus, Seen
from blocks.image import min_cuda
from blocks.logs import log
from blocks.runpod.body import create_body
from blocks.runpod.candidates import (
    Candidate,
    candidates,
    network_volume_price,
    place,
    prices,
    storage_price,
    tiers_of,
)
from blocks.runpod.client import Json, RunPodClient
from runner.errors import ConfigError, CreateFailed, NoCapacity, PodLost, TryAgain

# A new pod is missing from reads and lists for a while; three looks two seconds apart found it in
# every report. A second pod costs more than half a minute.
SHOWN_WITHIN = 30.0
LOOK_EVERY = 2.0
GONE_WITHIN = 60.0
PHASES = {
    "PROVISIONING": PodPhase.QUEUED,
    "STARTING": PodPhase.STARTING,
    "RUNNING": PodPhase.RUNNING,
    "EXITED": PodPhase.STOPPED,
    "ERROR": PodPhase.BROKEN,
}
ENDED = "TERMINATED"
# With a template or without a GPU these are what RunPod leaves out of an answer.
_NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True)
class RunPodCloud:
    """Pods of one RunPod account."""

    client: RunPodClient
    name: str = "runpod"
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))

    def create(self, order: PodOrder) -> Pod:
        """The pod of the order's run: the one that exists (a stopped one is started), else a new
        one.
        """
        pod = self._adopt(self._pods_of(order.run))
        if pod:
            return pod
        refusals = []
        for candidate in self._candidates(order):
            try:
                return self._create(order, candidate)
            except NoCapacity as full:
                refusals.append(f"{candidate.place}: {full}")
                log().info("RunPod has no room for %s", candidate.place)
        raise NoCapacity(f"asked for {len(refusals)}, all full; the last: {refusals[-1]}")

    def find(self, run: str) -> Pod | None:
        """The pod of this run, None when a successful listing does not hold it."""
        return next(iter(self._pods_of(run)), None)

    def list_ours(self) -> list[Pod]:
        """All pods of the account that are named `axr-…`, oldest first."""
        return [seen.pod for seen in self.survey()]

    def survey(self) -> list[Seen]:
        """The same with what each of them does."""
        ours = [
            Seen(self._pod(found), _status(found))
            for found in self.client.pods()
            if found["name"].startswith(NAME_PREFIX) and found["status"] != ENDED
        ]
        return sorted(ours, key=lambda seen: seen.pod.created)

    def status(self, pod: Pod) -> PodStatus:
        """Phase and telemetry; PodLost when neither the pod nor the list of pods has it."""
        found = self.client.pod(pod.id)
        if found is None or found["status"] == ENDED:
            if self._is_new(pod):
                return PodStatus(PodPhase.QUEUED)
            if not self._is_listed(pod):
                raise PodLost(f"RunPod no longer has the pod {pod.id}")
            raise TryAgain(f"RunPod lists the pod {pod.id} but does not show it")
        return _status(found)

    def terminate(self, pod: Pod) -> None:
        """Delete the pod until a successful list no longer holds it; TryAgain after GONE_WITHIN."""
        deadline = self.clock() + GONE_WITHIN
        pause = LOOK_EVERY
        while True:
            try:
                self.client.delete(pod.id)
                if not self._is_listed(pod):
                    return
            except TryAgain as busy:
                pause = max(LOOK_EVERY, busy.after or 0.0)
            if self.clock() + pause > deadline:
                raise TryAgain(f"the RunPod pod {pod.id} is not confirmed gone")
            self.sleep(pause)

    def log(self, pod: Pod) -> str:
        """The last lines of the pod's container and of its host."""
        return "\n".join(self.client.log(pod.id))

    def price(self, order: PodOrder) -> float:
        """USD per hour of the first machine that would be asked for."""
        return self._candidates(order)[0].price_per_hour

    def prices(self, order: PodOrder) -> dict[str, float]:
        """USD per hour of the pod with each of the order's GPUs that RunPod has."""
        return prices(self._catalog(order), order)

    def volume_price(self, volume_id: str) -> float:
        """USD per hour of a network volume, which is billed with or without a pod."""
        volume = self.client.volume(volume_id) or _NOTHING
        return network_volume_price(float(volume.get("size") or 0))

    def _create(self, order: PodOrder, candidate: Candidate) -> Pod:
        try:
            made = self.client.create(create_body(order, candidate, self.client.base_url))
        except CreateFailed as unclear:
            pod = self._look_for(order.run)
            if pod is None:
                # Not the next candidate: this one may yet show up.
                raise CreateFailed(f"{unclear}; no pod named {order.name} is to be seen") from None
            log().warning("%s, but it made the pod %s, which is used", unclear, pod.id)
            return pod
        pod = self._pod(made)
        if not made.get("cost"):
            pod = replace(pod, price_per_hour=candidate.price_per_hour)
        return pod

    def _look_for(self, run: str) -> Pod | None:
        """The run's pod, as soon as it is shown."""
        deadline = self.clock() + SHOWN_WITHIN
        while True:
            try:
                found = self.find(run)
            except TryAgain:
                found = None
            if found or self.clock() >= deadline:
                return found
            self.sleep(LOOK_EVERY)

    def _adopt(self, mine: list[Pod]) -> Pod | None:
        """The run's oldest pod, running; any other was made by a call that seemed to fail.

        None when there is none, or when its host has no room to start it again: it is ended then.
        """
        for extra in mine[1:]:
            log().warning("The run has a second pod %s: it is ended", extra.id)
            self.terminate(extra)
        if not mine:
            return None
        found = self.client.pod(mine[0].id)
        if found is not None and found["status"] == "EXITED" and not self._start(mine[0]):
            log().warning("The host of the stopped pod %s is full: it is ended", mine[0].id)
            self.terminate(mine[0])
            return None
        return mine[0]

    def _start(self, pod: Pod) -> bool:
        try:
            return self.client.act(pod.id, "start")
        except NoCapacity:
            return False

    def _candidates(self, order: PodOrder) -> list[Candidate]:
        catalog = self._catalog(order)
        if order.network_volume:
            order = replace(order, data_centers=(self._center_of(order.network_volume),))
        return candidates(catalog, order)

    def _catalog(self, order: PodOrder) -> dict[str, list[Json]]:
        cuda = min_cuda(order)
        return {
            tier: self.client.gpus(tier=tier, count=order.gpu_count, min_cuda=cuda)
            for tier in tiers_of(order)
        }

    def _center_of(self, volume_id: str) -> str:
        """A network volume can only be mounted where it lies."""
        volume = self.client.volume(volume_id)
        if volume is None:
            raise ConfigError(
                f"RunPod has no network volume {volume_id!r} in this account: create it, or leave "
                "network_volume out"
            )
        return str(volume["dataCenter"])

    def _pods_of(self, run: str) -> list[Pod]:
        return [pod for pod in self.list_ours() if pod.run == run]

    def _is_listed(self, pod: Pod) -> bool:
        return any(other.id == pod.id for other in self.list_ours())

    def _is_new(self, pod: Pod) -> bool:
        return (self.now() - pod.created).total_seconds() < SHOWN_WITHIN

    def _pod(self, found: Json) -> Pod:
        gpu = found.get("gpu") or _NOTHING
        mounts = found.get("mounts") or _NOTHING
        volume = (mounts.get("persistent") or _NOTHING).get("size") or 0
        return Pod(
            id=str(found["id"]),
            name=str(found["name"]),
            cloud=self.name,
            created=_time(found.get("createdAt")) or self.now(),
            # `cost` is the GPUs' rate alone.
            price_per_hour=round(
                float(found.get("cost") or 0.0)
                + storage_price(float(found.get("disk") or 0) + float(volume)),
                4,
            ),
            place=place(str(gpu.get("id")), str(found.get("cloud")), found.get("dataCenterId")),
            installation=str((found.get("env") or _NOTHING).get(INSTALLATION) or ""),
        )


def _status(found: Json) -> PodStatus:
    """What RunPod says of a pod; a runtime of null or {} says nothing, not zero."""
    phase = PHASES.get(found["status"], PodPhase.BROKEN)
    has_gpus = (found.get("gpu") or {"count": 0}).get("count") != 0
    if not has_gpus and phase is not PodPhase.STOPPED:
        phase = PodPhase.BROKEN  # started again on a host whose GPUs others have by now
    runtime = found.get("runtime") or _NOTHING
    gpus = runtime.get("gpus") or []
    if phase is PodPhase.RUNNING and not runtime.get("uptime"):
        phase = PodPhase.STARTING  # it calls a pod running while its image is still fetched
    return PodStatus(
        phase=phase,
        uptime=runtime.get("uptime"),
        cpu_percent=(runtime.get("cpu") or _NOTHING).get("util"),
        gpu_percent=_mean([gpu.get("util") for gpu in gpus]),
        ram_percent=(runtime.get("memory") or _NOTHING).get("util"),
        vram_percent=_mean([gpu.get("memoryUtil") for gpu in gpus]),
        ssh=_ssh(found) if phase is PodPhase.RUNNING else None,
    )


def _ssh(found: Json) -> str | None:
    """The pod's own port where 22/tcp is open: RunPod's proxy has an interactive shell only."""
    ways = found.get("ssh") or _NOTHING
    way = ways.get("direct") or ways.get("proxy") or _NOTHING
    return way.get("command")


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
