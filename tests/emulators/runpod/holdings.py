"""What the one account of the emulator has: pods, volumes, keys, money."""

from __future__ import annotations

import secrets
import threading
from collections import Counter
from decimal import Decimal
from typing import Any

from tests.emulators.meter import Meter
from tests.emulators.runpod.billing import disk_rate
from tests.emulators.runpod.catalog import Catalog
from tests.emulators.runpod.lifecycle import Host
from tests.emulators.runpod.pods import Pod
from tests.emulators.runpod.problems import Problem


class Holdings:
    """Looking at the account; `credit` in USD. `lock` guards all of it."""

    def __init__(self, host: Host, key: str, credit: float) -> None:
        self.host = host
        self.key = key
        self.faults = host.faults
        self.clock = host.clock
        self.pods: dict[str, Pod] = {}
        self.ended: list[Pod] = []
        self.volumes: dict[str, dict[str, Any]] = {}
        self.lock = threading.RLock()
        self.credit = Decimal(str(credit))
        self.spent_by_ended = Decimal(0)

    def visible(self) -> list[Pod]:
        """The pods that a listing holds, oldest first: those that the lags let us see."""
        with self.lock:
            now = self.clock.now()
            late = [
                pod
                for pod in self.ended
                if pod.reason != "host_lost" and now < (pod.ended or 0) + self.faults["delete_lag"]
            ]
            lag = self.faults["visibility_lag"]
            new = [pod for pod in self.pods.values() if now >= pod.created + lag]
            return sorted(late + new, key=lambda pod: pod.created)

    def find(self, pod_id: str) -> Pod:
        """The pod as a GET sees it; Problem 404."""
        for pod in self.visible():
            if pod.id == pod_id:
                return pod
        raise Problem(404, "pod not found")

    def view(self, pod: Pod) -> dict[str, Any]:
        """The pod of REST v2."""
        with self.lock:
            shown = pod.view(self.clock.now(), self.faults)
        if pod.ended is not None and self.faults["delete_lag_status"]:
            shown |= {"status": self.faults["delete_lag_status"], "actions": [], "cost": 0.0}
        return shown

    def owner_of(self, key: str) -> str | None:
        """ "account", the id of the pod that the key belongs to, or None for a wrong key."""
        if secrets.compare_digest(key.encode(), self.key.encode()):
            return "account"
        with self.lock:
            return next(
                (pod.id for pod in [*self.pods.values(), *self.ended] if pod.key == key), None
            )

    def catalog(self) -> Catalog:
        """What is free now; a stopped pod holds no GPU."""
        held: Counter[tuple[str, str, str]] = Counter()
        with self.lock:
            for pod in self.pods.values():
                if pod.status != "EXITED":
                    held[pod.order.gpu, pod.order.cloud, pod.center] += pod.count
        faults = self.faults
        return Catalog(faults["stock"], faults["cuda"], held, faults["stale_high"])

    def balance(self) -> Decimal:
        """USD that are left, to the millisecond."""
        with self.lock:
            now = self.clock.now()
            living = sum((pod.meter.total(now) for pod in self.pods.values()), Decimal(0))
            return self.credit - self.spent_by_ended - living

    def spend_per_hour(self) -> Decimal:
        """What the living pods cost now, disks included."""
        with self.lock:
            return sum(
                (
                    pod.cost
                    + disk_rate(pod.order.disk, pod.order.volume_gb, pod.status == "EXITED")
                    for pod in self.pods.values()
                ),
                Decimal(0),
            )

    def meters(self) -> list[tuple[str, Meter]]:
        """Every pod that ever was, with what it cost."""
        with self.lock:
            return [(pod.id, pod.meter) for pod in [*self.ended, *self.pods.values()]]
