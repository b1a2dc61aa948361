"""What can be done with the one account of the emulator.

All methods may be called from several threads. Creating is not idempotent and names are not unique.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from tests.emulators.calls import Dropped
from tests.emulators.logs import Log
from tests.emulators.runpod.catalog import GPUS, Wish
from tests.emulators.runpod.holdings import Holdings
from tests.emulators.runpod.lifecycle import SELF_END_S
from tests.emulators.runpod.orders import apply_patch, read_order
from tests.emulators.runpod.pods import ACTIONS, Order, Pod, new_id
from tests.emulators.runpod.problems import Problem


class Account(Holdings):
    """What the handlers of both APIs act upon."""

    def create(self, body: Mapping[str, Any]) -> Pod:
        """A new pod of a v2 body; Problem, or Dropped with the pod made."""
        with self.lock:
            order, wish = read_order(body, self.faults["templates"], self.volumes)
            pod = self.deploy(order, wish)
        if self.faults.take("create_5xx_after"):
            raise Problem(500, "internal error")
        if self.faults.take("create_timeout_after"):
            raise Dropped(self.faults["create_timeout_hold"])
        return pod

    def deploy(self, order: Order, wish: Wish) -> Pod:
        """A new pod; Problem 402 without an hour's credit, 400 without room."""
        if fault := self.faults.take_status("create_status"):
            raise Problem(fault.status, fault.detail, retry_after=fault.retry_after)
        gpu = GPUS[order.gpu]
        price = gpu.price(order.cloud)
        with self.lock:
            place = self.catalog().place(gpu, wish)
            refused = self.faults.take("create_400_capacity", gpu.id)
            if price is None or place is None or refused:
                raise Problem(400, self.faults.capacity_text())
            if self.balance() < price * order.count:
                raise Problem(402, "the balance is too low to deploy this pod")
            pod = self._make(order, price, *place)
            self.pods[pod.id] = pod
            self.host.boot(pod)
        return pod

    def patch(self, pod_id: str, body: Mapping[str, Any]) -> Pod:
        """Change a pod; a change of its container starts it anew."""
        with self.lock:
            pod = self._living(pod_id)
            anew = apply_patch(pod.order, body, self.faults["templates"])
            pod.locked = body.get("locked", pod.locked)
            if anew and pod.status == "RUNNING" and pod.lost is None:
                self.host.restart(pod)
            pod.meter_on(self.clock.now())
            return pod

    def act(self, pod_id: str, action: str, by: str = "account") -> Pod | None:
        """start, stop, restart or terminate; Problem 409 in a state that does not allow it."""
        with self.lock:
            pod = self._living(pod_id)
            if action not in ACTIONS[pod.status] or (pod.locked and action in ("stop", "restart")):
                raise Problem(409, f"cannot {action} a pod that is {pod.status}")
            if action == "terminate":
                self.terminate(pod, by)
                return None
            if action == "stop":
                self.host.stop(pod)
            elif action == "restart":
                self.host.restart(pod)
            else:
                if self.faults.take("resume_full"):
                    text = "There are not enough free GPUs on the host machine to start this pod."
                    raise Problem(400, text)
                pod.zero_gpus = self.faults.take("zero_gpus")
                self.host.boot(pod)
            return pod

    def terminate(self, pod: Pod, reason: str) -> None:
        """The pod ends now. One that ends itself has a moment to read the answer."""
        with self.lock:
            if pod.ended is not None:
                raise Problem(404, "pod not found")
            pod.ended, pod.reason = self.clock.now(), reason
            pod.meter.close(pod.ended)
            self.spent_by_ended += pod.meter.total(pod.ended)
            del self.pods[pod.id]
            self.ended.append(pod)
            if reason == pod.id:
                pod.kill_at = pod.ended + SELF_END_S
            else:
                self.host.clear(pod)

    def do(self, action: str, value: Any) -> None:
        """An action of the switches: balance, host_lost, kill_pod, restart_container."""
        with self.lock:
            if action == "balance":
                self.credit += Decimal(str(value)) - self.balance()
            elif action == "host_lost":
                ids = list(self.pods) if value == "all" else [value]
                for pod in [self.pods[pod_id] for pod_id in ids]:
                    self.host.end_processes(pod)
                    pod.lost = self.clock.now()
                    if self.faults["host_lost_mode"] == "404":
                        self.terminate(pod, "host_lost")
            elif action == "kill_pod":
                self.terminate(self.pods[value], "console")
            else:
                self.host.restart(self.pods[value])

    def advance(self) -> None:
        """Bring everything to the present."""
        with self.lock:
            now = self.clock.now()
            for pod in list(self.pods.values()):
                self.host.advance(pod)
                self._use_timers(pod, now)
            for pod in self.ended:
                if pod.kill_at is not None and now >= pod.kill_at:
                    self.host.clear(pod)
            if self.pods and self.balance() <= 0:
                self._take_away()

    def close(self) -> None:
        """End all pods, those that are about to end too."""
        with self.lock:
            for pod in list(self.pods.values()):
                self.terminate(pod, "emulator")
            for pod in self.ended:
                if pod.kill_at is not None:
                    self.host.clear(pod)

    def _living(self, pod_id: str) -> Pod:
        pod = self.find(pod_id)
        if pod.ended is not None:
            raise Problem(404, "pod not found")
        return pod

    def _make(self, order: Order, price: Decimal, center: str, cuda: str | None) -> Pod:
        pod_id, faults = new_id(), self.faults
        return Pod(
            id=pod_id,
            key=f"rpa_{secrets.token_hex(20)}",
            order=order,
            price=price,
            center=center,
            cuda=cuda,
            created=self.clock.now(),
            log=Log(self.clock, self.host.folders.log(pod_id)),
            boot_s=faults["boot_seconds"],
            pull_s=faults["image_pull_seconds"],
            never_ready=faults.take("never_ready", order.gpu),
            empty_machine=faults.take("empty_machine", order.gpu),
        )

    def _use_timers(self, pod: Pod, now: float) -> None:
        if self.faults["ignore_timers"] or pod.ended is not None:
            return
        if pod.order.terminate_after is not None and now >= pod.order.terminate_after:
            self.terminate(pod, "terminate_after")
        elif (
            pod.order.stop_after is not None
            and now >= pod.order.stop_after
            and pod.status != "EXITED"
        ):
            pod.order.stop_after = None
            self.host.stop(pod)

    def _take_away(self) -> None:
        """Without money, pods end; those with a network volume only stop."""
        for pod in list(self.pods.values()):
            if pod.order.volume_id is None:
                self.terminate(pod, "no balance")
            elif pod.status != "EXITED":
                self.host.stop(pod)
