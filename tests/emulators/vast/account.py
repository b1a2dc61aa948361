"""What can be done with the one account of the emulator.

All methods may be called from several threads. Creating is not idempotent, labels are not unique.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from tests.emulators.calls import Dropped
from tests.emulators.logs import Log
from tests.emulators.vast.holdings import Holdings
from tests.emulators.vast.instances import Instance
from tests.emulators.vast.lifecycle import SELF_END_S
from tests.emulators.vast.market import Ask
from tests.emulators.vast.orders import Order, read_order
from tests.emulators.vast.problems import (
    Refused,
    invalid,
    lacks_credit,
    no_longer,
    no_such_ask,
    no_such_instance,
)

DELETED_AFTER = 48 * 3600.0  # seconds after the end of the host's contract


class Account(Holdings):
    """What the handlers act upon."""

    def create(self, ask_id: int, body: Mapping[str, Any]) -> Instance:
        """A new instance; Refused, or Dropped with the instance made."""
        if fault := self.faults.take_status("create_status"):
            raise Refused(fault.status, "emulated", fault.detail, retry_after=fault.retry_after)
        with self.lock:
            order = read_order(body, self.faults["templates"])
            ask = self._ask(ask_id, order)
            if self.faults.take("create_false"):
                raise Refused(200, "emulated", "could not create")
            one = self._deploy(order, ask)
        faults = self.faults
        if faults.take("create_fails_with_contract"):
            self.host.halt(one, "stopped: failed")
            extra = {"new_contract": one.id}
            raise Refused(400, "invalid_args", "error 400/3467: failed to start", extra=extra)
        if faults.take("create_5xx_after"):
            raise Refused(faults["create_5xx"], "server_error", "", text="Bad Gateway")
        if faults.take("create_timeout_after"):
            raise Dropped(faults["create_timeout_hold"])
        return one

    def change_bid(self, instance_id: int, price: float) -> None:
        """A new bid; it acts at once, whether the instance runs or was outbid."""
        with self.lock:
            one = self._living(instance_id)
            if one.order.bid is None or not 0.001 <= price <= 32 * one.ask.size:
                raise invalid("Please set a bid price >= 0.001.", rule=False)
            one.order.bid = price
            one.meter_on(self.clock.now())
            self.advance()

    def set_state(self, instance_id: int, state: str, by: str) -> None:
        """running or stopped. Starting may have to wait for GPUs, for ever too."""
        with self.lock:
            one = self._living(instance_id)
            if state == "stopped":
                self.host.halt(one, f"stopped by {by}")
                one.outbid = False
            elif one.is_stopped:
                one.wanted = "running"
                one.scheduling = True
                one.stuck = "scheduling" if self.faults.take("start_scheduling") else None
                self.advance()

    def label(self, instance_id: int, label: str) -> None:
        """Its name."""
        with self.lock:
            self._living(instance_id).order.label = label

    def destroy(self, instance_id: int, reason: str) -> None:
        """The instance ends now. One that ends itself has a moment to read the answer."""
        with self.lock:
            self._end(self._living(instance_id), reason)

    def do(self, action: str, value: Any) -> None:
        """An action of the switches."""
        with self.lock:
            if action == "balance":
                self.credit += Decimal(str(value)) - self.balance()
            elif action == "outbid":
                one = self.instances[int(value)]
                assert one.order.bid is not None, "only a bid can be outbid"
                rival = Decimal(str(one.order.bid)) / one.ask.size * Decimal("1.25")
                self.market.rivals[one.ask.machine.id] = rival
            elif action == "rival_leaves":
                machines = list(self.market.rivals) if value == "all" else [int(value)]
                for machine in machines:
                    self.market.rivals.pop(machine, None)
            elif action == "take":
                self._take(int(value))
            elif action == "kill_pod":
                self.destroy(int(value), "console")
            elif action == "stop_pod":
                self.set_state(int(value), "stopped", "console")
            elif action == "host_lost":
                self.host.break_down(self.instances[int(value)], "offline")
            elif action == "set_status":
                self.host.break_down(self.instances[int(value["id"])], value["status"])
            elif action == "restart_container":
                self.host.restart(self.instances[int(value)])
            else:
                self._add_traffic(value)
            self.advance()

    def advance(self) -> None:
        """Bring everything to the present."""
        with self.lock:
            for one in list(self.instances.values()):
                self._use_market(one)
                self.host.advance(one)
                self._use_contract(one)
            for one in self.ended:
                if one.kill_at is not None and self.clock.now() >= one.kill_at:
                    self.host.clear(one)
            if self.instances and self.balance() <= 0:
                for one in self.instances.values():
                    if not one.is_stopped:
                        self.host.halt(one, "stopped: no credit")

    def close(self) -> None:
        """End all instances, those that are about to end too."""
        with self.lock:
            for one in list(self.instances.values()):
                self._end(one, "emulator")
            for one in self.ended:
                if one.kill_at is not None:
                    self.host.clear(one)

    def _ask(self, ask_id: int, order: Order) -> Ask:
        """The offer, still there and good enough for the order."""
        ask = self.market.find(ask_id, self.held())
        if ask is None or self.market.is_snatched(ask):
            raise no_such_ask(ask_id, self.faults["gone_status"])
        if order.disk > ask.machine.disk * ask.size / ask.machine.gpus:
            raise invalid("disk exceeds what the offer has")
        price = order.bid if order.bid is not None else ask.machine.price * ask.size
        if self.faults.take("no_credit") or self.balance() < Decimal(str(price)):
            raise lacks_credit()
        return ask

    def _deploy(self, order: Order, ask: Ask) -> Instance:
        wins = self._wins(order, ask)
        if not wins and order.cancel_unavail and not self.faults["ignore_cancel_unavail"]:
            raise no_longer(ask.id)
        if not wins and self.faults["low_bid"] == "refused":
            raise Refused(400, "invalid_price", "error 400/3467: bid below the minimum")
        one = self._make(order, ask)
        self.instances[one.id] = one
        if wins and order.target_state == "running":
            self.host.boot(one)
            return one
        self.host.halt(one, "stopped")
        one.outbid = not wins
        if not wins and self.faults["low_bid"] == "leaves":
            extra = {"new_contract": one.id}
            msg = "error 400/3467: bid below the minimum"
            raise Refused(400, "invalid_price", msg, extra=extra)
        return one

    def _make(self, order: Order, ask: Ask) -> Instance:
        faults = self.faults
        self.next_id += 1
        return Instance(
            id=self.next_id,
            key=secrets.token_hex(32),
            order=order,
            ask=ask,
            created=self.clock.now(),
            log=Log(self.clock, self.host.folders.log(str(self.next_id))),
            stuck=faults["stuck"] if faults.take("stuck_times", ask.machine.gpu) else None,
            pull_error=faults.take("pull_error", ask.machine.gpu),
            ghost=faults.take("create_ghost"),
        )

    def _end(self, one: Instance, reason: str) -> None:
        one.ended, one.reason = self.clock.now(), reason
        one.meter.close(one.ended)
        del self.instances[one.id]
        self.ended.append(one)
        if reason == str(one.id):
            one.kill_at = one.ended + SELF_END_S
        else:
            self.host.clear(one)

    def _living(self, instance_id: int) -> Instance:
        if instance_id not in self.instances or not self.is_seen(self.instances[instance_id]):
            raise no_such_instance()
        return self.instances[instance_id]

    def _wins(self, order: Order, ask: Ask) -> bool:
        if order.bid is None:
            return True
        return Decimal(str(order.bid)) >= self.market.to_win(ask.machine) * ask.size

    def _use_market(self, one: Instance) -> None:
        """Stop what was outbid; start what wins again or has waited for its GPUs."""
        if one.lost is not None:
            return
        wins = self._wins(one.order, one.ask)
        if not one.is_stopped and not wins:
            self.host.outbid(one)
        elif (one.outbid or one.scheduling) and wins and one.stuck != "scheduling":
            machine = one.ask.machine.id
            others = self.market.tenants.get(machine, set()) | self.held().get(machine, set())
            if not one.ask.slots & others:
                self.host.boot(one)

    def _use_contract(self, one: Instance) -> None:
        now, end = self.clock.now(), one.end_date()
        if now >= end + DELETED_AFTER:
            self._end(one, "contract")
        elif now >= end and not one.is_stopped:
            self.host.halt(one, "stopped: the contract has ended")

    def _take(self, ask_id: int) -> None:
        found = self.market.find(ask_id, self.held())
        if found is None:
            raise ValueError(f"no offer {ask_id}")
        self.market.take(found)

    def _add_traffic(self, value: Mapping[str, Any]) -> None:
        one = self.instances[int(value["id"])]
        machine = one.ask.machine
        for way, price in (("down", machine.down_cost), ("up", machine.up_cost)):
            one.traffic += Decimal(str(value.get(way, 0))) * Decimal(str(price))
