"""What the one account of the emulator has: instances, keys, money."""

from __future__ import annotations

import random
import secrets
import threading
from collections import defaultdict
from decimal import Decimal
from typing import Any

from tests.emulators.vast.instances import Instance
from tests.emulators.vast.lifecycle import Host
from tests.emulators.vast.market import Market


class Holdings:
    """Looking at the account; `credit` in USD. `lock` guards all of it."""

    def __init__(self, host: Host, market: Market, key: str, credit: float) -> None:
        self.host = host
        self.market = market
        self.key = key
        self.faults = host.faults
        self.clock = host.clock
        self.instances: dict[int, Instance] = {}
        self.ended: list[Instance] = []
        self.uploads: dict[str, tuple[int, str]] = {}  # of logs: how often still 404, the text
        self.lock = threading.RLock()
        self.credit = Decimal(str(credit))
        # An id marks processes of this machine: no two emulators may come to the same one.
        self.next_id = random.randrange(10_000_000, 2_000_000_000)

    def is_seen(self, one: Instance) -> bool:
        """Whether calls know this living instance yet."""
        lag = self.faults["visibility_lag"]
        return not one.ghost and self.clock.now() >= one.created + lag

    def visible(self) -> list[Instance]:
        """The instances that a listing holds, by id."""
        with self.lock:
            now = self.clock.now()
            lag = self.faults["destroy_lag"]
            late = [one for one in self.ended if now < (one.ended or 0) + lag]
            new = [one for one in self.instances.values() if self.is_seen(one)]
            return sorted(late + new, key=lambda one: one.id)

    def view(self, one: Instance) -> dict[str, Any]:
        """The instance as the API shows it."""
        with self.lock:
            lowest = float(self.market.to_win(one.ask.machine)) * one.ask.size
            return one.view(self.clock.now(), self.faults, lowest)

    def owner_of(self, key: str) -> str | None:
        """ "account", the id of the instance that the key belongs to, or None for a wrong key."""
        if secrets.compare_digest(key.encode(), self.key.encode()):
            return "account"
        with self.lock:
            all_of_them = [*self.instances.values(), *self.ended]
            return next((str(one.id) for one in all_of_them if one.key == key), None)

    def held(self) -> dict[int, set[int]]:
        """The GPUs that are ours now: machine to slots."""
        slots: defaultdict[int, set[int]] = defaultdict(set)
        with self.lock:
            for one in self.instances.values():
                if not one.is_stopped:
                    slots[one.ask.machine.id] |= one.ask.slots
        return dict(slots)

    def costs(self) -> dict[int, Decimal]:
        """USD that every instance that ever was has cost."""
        with self.lock:
            now = self.clock.now()
            return {one.id: one.cost(now) for one in [*self.ended, *self.instances.values()]}

    def balance(self) -> Decimal:
        """USD that are left."""
        return self.credit - sum(self.costs().values(), Decimal(0))
