"""Vast behind the Cloud interface.

A create call is never simply repeated: after an answer that decides nothing the instance is looked
up by its label first. What a failed call made nevertheless is destroyed. "Not found" is believed
only of a successful list of all pages, and of a new instance only after the time that Vast may take
to show it.

Vast shows an instance that was outbid as one that was stopped. So a stop of our own is written
into the label, `axr-<run> stopped`; any other stopped bid counts as outbid, also one that somebody
stopped in the console: its run goes on elsewhere either way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime

from blocks.cloud import NAME_PREFIX, Pod, PodOrder, PodPhase, PodStatus, Seen
from blocks.logs import log
from blocks.vast.body import create_call
from blocks.vast.client import VastClient
from blocks.vast.look import (
    STOPPED_MARK,
    created,
    installation,
    phase_of,
    status_of,
    storage_price,
)
from blocks.vast.offers import Candidate, candidates, disk_gb, place, prices, query
from blocks.vast.refusals import Json
from runner.errors import CreateFailed, NoCapacity, PodLost, RunnerError, TryAgain

# Seconds that Vast may take to show a new instance, and we to end one.
SHOWN_WITHIN = 30.0
LOOK_EVERY = 2.0
GONE_WITHIN = 120.0
DESTROY_EVERY = 3.0
# Offers that may be gone before the market is looked at anew, and how often it is looked at.
MISSES, SEARCHES = 4, 3
# What will not become running by itself, or nobody knows when: it is destroyed, not waited for.
REPLACED = (PodPhase.OUTBID, PodPhase.BROKEN)


@dataclass(frozen=True)
class VastCloud:
    """Instances of one Vast account."""

    client: VastClient
    name: str = "vast"
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))

    def create(self, order: PodOrder) -> Pod:
        """The pod of the order's run: the one that exists, if it runs or will; else a new one, and
        one that was outbid or is broken is destroyed before that: two would write the same run.
        """
        pod = self._adopt(order.run)
        if pod:
            return pod
        tried: list[tuple[int, float | None]] = []
        last = ""
        for _ in range(SEARCHES):
            try:
                open_ones = self._candidates(order, tried)
            except NoCapacity:
                if not tried:
                    raise
                break
            for candidate in open_ones[:MISSES]:
                tried.append(candidate.key)
                try:
                    return self._create(order, candidate)
                except NoCapacity as taken:
                    last = f"{candidate.gpu} on {candidate.place}: {taken}"
                    log().info("Vast: the offer of a %s", last)
        raise NoCapacity(f"{len(tried)} offers were tried, all taken; the last: {last}")

    def find(self, run: str) -> Pod | None:
        """The pod of this run, None when a successful listing does not hold it."""
        return next((pod for pod in self.list_ours() if pod.run == run), None)

    def list_ours(self) -> list[Pod]:
        """All instances of the account that are labelled `axr-…`, oldest first."""
        return [seen.pod for seen in self.survey()]

    def survey(self) -> list[Seen]:
        """The same with what each of them does."""
        ours = [Seen(self._pod(found), status_of(found)) for found in self._ours()]
        return sorted(ours, key=lambda seen: (seen.pod.created, int(seen.pod.id)))

    def status(self, pod: Pod) -> PodStatus:
        """Phase and telemetry; PodLost when neither a look at it nor the list has it."""
        found = self.client.instance(pod.id)
        if found is not None:
            return status_of(found)
        if (self.now() - pod.created).total_seconds() < SHOWN_WITHIN:
            return PodStatus(PodPhase.QUEUED)
        if self._is_listed(pod.id):
            raise TryAgain(f"Vast lists the instance {pod.id} but does not show it")
        raise PodLost(f"Vast no longer has the instance {pod.id}")

    def terminate(self, pod: Pod) -> None:
        """Destroy it until a successful list no longer holds it; TryAgain after GONE_WITHIN."""
        deadline = self.clock() + GONE_WITHIN
        while True:
            pause = DESTROY_EVERY
            try:
                self.client.destroy(pod.id)
                if not self._is_listed(pod.id):
                    return
            except TryAgain as busy:
                pause = max(pause, busy.after or 0.0)
            if self.clock() + pause > deadline:
                raise TryAgain(f"the Vast instance {pod.id} is not confirmed gone")
            self.sleep(pause)

    def log(self, pod: Pod) -> str:
        """The last lines of the instance's container, and of its host where that said nothing."""
        return self.client.log(pod.id) or self.client.log(pod.id, host=True)

    def price(self, order: PodOrder) -> float:
        """USD per hour, storage included, of the first offer that would be taken."""
        return self._candidates(order)[0].price_per_hour

    def prices(self, order: PodOrder) -> dict[str, float]:
        """USD per hour of the pod with each of the order's GPUs that is on offer now."""
        found = self.client.offers(query(order), bid=order.spot, storage_gb=disk_gb(order))
        return prices(found, order)

    def stop(self, pod: Pod) -> None:
        """Stop the pod and remember that it was us; its disk is kept, and paid for."""
        self.client.label(pod.id, f"{pod.name} {STOPPED_MARK}")
        self.client.stop(pod.id)

    def _create(self, order: PodOrder, candidate: Candidate) -> Pod:
        call = create_call(order, candidate, f"{self.client.base_url}/api/v0")
        began, price = self.now(), candidate.price_per_hour
        try:
            number = self.client.create(candidate.offer, call)
        except CreateFailed as failed:
            if failed.pod_id:
                self._undo(order, failed.pod_id)
                if isinstance(failed.__cause__, RunnerError):
                    raise failed.__cause__ from None
                raise
            shown = self._look_for(lambda found: found["label"] == order.name)
            if shown is None:
                # Not the next offer: this instance may yet show up.
                text = f"{failed}; no instance labelled {order.name} is to be seen"
                raise CreateFailed(text) from None
            log().warning("%s, but it made the instance %s, which is used", failed, shown["id"])
            number = str(shown["id"])
        else:
            # Until it is listed, the next look by its label would miss it and rent another one.
            shown = self._look_for(lambda found: str(found["id"]) == number)
        if shown is None:
            return Pod(number, order.name, self.name, began, price, candidate.place)
        if phase_of(shown) is PodPhase.OUTBID:
            self._undo(order, number)
            raise NoCapacity("the bid does not win")
        return self._pod(shown)

    def _undo(self, order: PodOrder, number: str) -> None:
        """Destroy what a refused call left behind."""
        log().warning("The instance %s of a create call that failed is destroyed", number)
        self.terminate(Pod(number, order.name, self.name, self.now(), 0.0))

    def _look_for(self, is_it: Callable[[Json], bool]) -> Json | None:
        """The instance of ours, as soon as it is listed."""
        deadline = self.clock() + SHOWN_WITHIN
        while True:
            try:
                found = next((each for each in self._ours() if is_it(each)), None)
            except TryAgain:
                found = None
            if found or self.clock() >= deadline:
                return found
            self.sleep(LOOK_EVERY)

    def _adopt(self, run: str) -> Pod | None:
        """The run's oldest instance that runs or will; all its others are destroyed."""
        mine = [(self._pod(found), found) for found in self._ours()]
        mine = sorted((each for each in mine if each[0].run == run), key=lambda one: int(one[0].id))
        kept: Pod | None = None
        for pod, found in mine:
            phase = phase_of(found)
            if kept or phase in REPLACED:
                log().warning("The run's instance %s (%s) is destroyed", pod.id, phase)
                self.terminate(pod)
                continue
            if phase is PodPhase.STOPPED:
                self.client.label(pod.id, pod.name)
                self.client.start(pod.id)
            kept = pod
        return kept

    def _candidates(
        self, order: PodOrder, tried: Collection[tuple[int, float | None]] = ()
    ) -> list[Candidate]:
        found = self.client.offers(query(order), bid=order.spot, storage_gb=disk_gb(order))
        return candidates(found, order, tried)

    def _ours(self) -> list[Json]:
        return [
            found
            for found in self.client.instances()
            if str(found.get("label") or "").startswith(NAME_PREFIX)
        ]

    def _is_listed(self, number: str) -> bool:
        return any(str(found["id"]) == number for found in self.client.instances())

    def _pod(self, found: Json) -> Pod:
        return Pod(
            id=str(found["id"]),
            name=str(found["label"]).partition(" ")[0],
            cloud=self.name,
            created=created(found) or self.now(),
            price_per_hour=round(float(found.get("dph_total") or 0.0), 4),
            place=place(found.get("machine_id")),
            installation=installation(found),
            loading_per_hour=storage_price(found),
        )
