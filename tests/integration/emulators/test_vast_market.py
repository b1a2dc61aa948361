"""Competing tenants, bids and limits of the Vast emulator, and its faults."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.emulators.testing import alive, until
from tests.emulators.vast import __doc__ as told
from tests.emulators.vast.faults import ACTIONS, DEFAULTS
from tests.emulators.vast.testing import ASK, Rig, order, rig

STOPPED = ("stopped", "stopped", "stopped")


@pytest.fixture
def one() -> Iterator[Rig]:
    with rig() as made:
        yield made


def _states(one: Rig, made: int) -> tuple[str, ...]:
    pod = one.pod(made)
    return tuple(pod[name] for name in ("cur_state", "intended_status", "next_state"))


def test_every_switch_is_told_of() -> None:
    """In the docstring of the package."""
    assert told is not None
    names = re.findall(r"\w+", told)
    assert [name for name in (*DEFAULTS, *ACTIONS) if name not in names] == []


def test_a_tenant_may_take_an_offer_between_search_and_rent(one: Rig) -> None:
    """It is gone for good, in the words of the live service."""
    one.cloud.set(snatch={"RTX A5000": 1})
    answer = one.api.put(f"/api/v0/asks/{ASK}/", json=order())
    assert (answer.status_code, "no_such_ask" in answer.json()["msg"]) == (400, True)
    assert ASK not in {offer["id"] for offer in one.offers(limit=99)}
    one.create(ASK + 1)
    one.cloud.set(take=ASK + 2, snatch_probability=1.0)
    assert one.api.put(f"/api/v0/asks/{ASK + 3}/", json=order()).status_code == 400
    assert one.cloud.state["tenants"]["31001"] == [0, 2, 3]


def test_outbid_at_a_chosen_moment_and_back_again(one: Rig) -> None:
    """Processes die at once; it looks as a stop; it comes back by itself, on its disk."""
    script = "trap '' TERM; echo $$; touch $HOME/here$(ls $HOME | wc -l); sleep 60"
    made = one.running(price=0.2, args=["-c", script])
    until(lambda: one.cloud.lines(made))
    pid = int(one.cloud.lines(made)[0])
    assert alive(pid)
    one.cloud.set(outbid=made)
    assert not alive(pid)
    assert _states(one, made) == STOPPED
    (offer,) = one.offers(id={"eq": ASK}, type="bid")
    assert offer["min_bid"] == pytest.approx(0.25)
    one.cloud.advance(3600)
    assert _states(one, made) == STOPPED
    one.cloud.set(rival_leaves=31001)
    one.cloud.advance(1)
    assert one.pod(made)["actual_status"] == "running"
    until(lambda: len(one.cloud.lines(made)) == 2)
    # The first hour out cost no GPU.
    assert one.cloud.state["bill"][str(made)] < 0.01


def test_the_market_price_decides(one: Rig) -> None:
    """By GPU or machine; a higher bid brings the instance back."""
    made = one.running(price=0.2)
    one.cloud.set(market_price={"RTX A5000": 0.21})
    assert _states(one, made) == STOPPED
    call = {"client_id": "me", "price": 0.22}
    one.api.put(f"/api/v0/instances/bid_price/{made}/", json=call)
    one.cloud.advance(1)
    assert one.pod(made)["actual_status"] == "running"
    one.cloud.set(market_price={"31001": 0.5})
    assert _states(one, made) == STOPPED
    one.cloud.set(market_price={})
    one.cloud.advance(1)
    assert one.pod(made)["actual_status"] == "running"


def test_a_stop_of_the_owner_does_not_end_by_itself(one: Rig) -> None:
    """Though it looks the same."""
    made = one.running(price=0.2)
    one.cloud.set(stop_pod=made)
    one.cloud.advance(3600)
    assert _states(one, made) == STOPPED
    one.api.put(f"/api/v0/instances/{made}/", json={"state": "running"})
    one.cloud.advance(1)
    assert one.pod(made)["actual_status"] == "running"


def test_a_start_waits_for_gpus_that_others_have_by_now(one: Rig) -> None:
    """Or for ever, by a switch."""
    made = one.running()
    path = f"/api/v0/instances/{made}/"
    one.api.put(path, json={"state": "stopped"})
    one.cloud.set(take=ASK)
    one.api.put(path, json={"state": "running"})
    one.cloud.advance(3600)
    assert _states(one, made) == ("stopped", "running", "running")


@pytest.mark.parametrize(
    ("low_bid", "status", "left"), [("leaves", 400, 1), ("waits", 200, 1), ("refused", 400, 0)]
)
def test_a_bid_below_the_minimum(one: Rig, low_bid: str, status: int, left: int) -> None:
    """A stopped instance may be left behind, named in the refusal."""
    one.cloud.set(low_bid=low_bid)
    answer = one.api.put(f"/api/v0/asks/{ASK}/", json=order(price=0.05))
    assert answer.status_code == status
    assert len(one.cloud.state["pods"]) == left
    assert ("new_contract" in answer.json()) == bool(left)
    answer = one.api.put(f"/api/v0/asks/{ASK}/", json=order(price=0.05, cancel_unavail=True))
    assert answer.status_code == 410


@pytest.mark.parametrize(
    ("switches", "made", "status"),
    [
        ({"create_5xx_after": 1}, 1, 502),
        ({"create_5xx_after": 1, "create_5xx": 504}, 1, 504),
        ({"create_fails_with_contract": 1}, 1, 400),
        ({"create_false": 1}, 0, 200),
        ({"create_ghost": 1}, 1, 200),
        ({"no_credit": 1}, 0, 400),
        ({"create_status": {"status": 200, "detail": "no"}}, 0, 200),
        ({"create_status": 500}, 0, 500),
    ],
)
def test_create_faults(one: Rig, switches: dict[str, Any], made: int, status: int) -> None:
    """What was made in spite of the answer is in the state."""
    one.cloud.set(**switches)
    answer = one.api.put(f"/api/v0/asks/{ASK}/", json=order())
    assert (answer.status_code, len(one.cloud.state["pods"])) == (status, made)
    assert len(one.api.get("/api/v1/instances/").json()["instances"]) == (
        0 if "create_ghost" in switches else made
    )


def test_a_create_call_may_get_no_answer(one: Rig) -> None:
    """The instance is there."""
    one.cloud.set(create_timeout_after=1)
    with pytest.raises(httpx.RemoteProtocolError):
        one.create()
    assert len(one.cloud.state["pods"]) == 1


def test_the_least_time_between_calls_of_a_kind() -> None:
    """As published; a create call that comes too early is made to wait longer."""
    with rig(gaps=True) as one:
        one.create()
        early = one.api.put(f"/api/v0/asks/{ASK + 1}/", json=order())
        assert (early.status_code, early.text) == (
            429,
            "API requests too frequent: endpoint threshold=4.5",
        )
        one.cloud.advance(5)
        assert one.api.put(f"/api/v0/asks/{ASK + 1}/", json=order()).status_code == 429
        one.cloud.advance(12.1)
        one.create(ASK + 1)
        listed = [one.api.get("/api/v1/instances/").status_code for _ in range(2)]
        assert listed == [200, 429]
        searched = [one.api.post("/api/v0/bundles/", json={}).status_code for _ in range(11)]
        assert searched == [200] * 10 + [429]


def test_the_search_quota(one: Rig) -> None:
    """With a word of its own."""
    one.cloud.set(search_quota=1)
    one.offers()
    refused = one.api.post("/api/v0/bundles/", json={})
    assert (refused.status_code, refused.json()["error"]) == (429, "search_quota_exceeded")


def test_keys(one: Rig) -> None:
    """A wrong one, one without its second factor, and an instance's own."""
    first, second = one.create(), one.create(ASK + 1)
    wrong = {"Authorization": "Bearer wrong"}
    assert one.api.get("/api/v1/instances/", headers=wrong).json()["error"] == "auth_error"
    one.cloud.set(search_key_404=True)
    assert one.api.post("/api/v0/bundles/", headers=wrong, json={}).status_code == 404
    with one.as_pod(first) as pod:
        assert pod.get("/api/v1/instances/").status_code == 403
        assert pod.delete(f"/api/v0/instances/{second}/").status_code == 403
        path = f"/api/v0/instances/{first}/"
        assert pod.put(path, json={"label": "x"}).status_code == 403
        assert pod.put(path, json={"state": "stopped"}).status_code == 200
        assert pod.delete(path).json() == {"success": True}
    one.cloud.set(two_factor=True)
    assert "Two Factor" in one.api.get("/api/v1/instances/").json()["msg"]


def test_visibility_lags(one: Rig) -> None:
    """New ones come late, ended ones stay for a while."""
    one.cloud.set(visibility_lag=10, destroy_lag=10)
    made = one.create()
    path = f"/api/v0/instances/{made}/"
    assert one.api.get(path).json() == {"instances": None}
    one.cloud.advance(10)
    assert one.pod(made)["id"] == made
    one.api.request("DELETE", path, json={})
    assert one.pod(made)["id"] == made
    one.cloud.advance(10)
    assert one.api.get(path).json() == {"instances": None}


def test_the_life_of_an_instance(one: Rig) -> None:
    """Null, created, loading, running; stuck on the way by a switch."""
    one.cloud.set(provision_seconds=10, created_seconds=10, image_pull_seconds=10)
    made = one.create()
    seen = [one.pod(made)["actual_status"]]
    for _ in range(3):
        one.cloud.advance(10)
        seen.append(one.pod(made)["actual_status"])
    assert seen == [None, "created", "loading", "running"]
    one.cloud.set(stuck="loading", stuck_times=1)
    stuck = one.create(ASK + 1)
    one.cloud.advance(9999)
    assert one.pod(stuck)["actual_status"] == "loading"


def test_the_end_of_the_hosts_contract(one: Rig) -> None:
    """Stopped, and two days later deleted."""
    one.cloud.set(machines={"31001": {"days": 0.5}})
    made = one.running()
    one.cloud.advance(12 * 3600)
    assert _states(one, made) == STOPPED
    one.cloud.advance(48 * 3600)
    assert one.cloud.state["ended"][0]["reason"] == "contract"


def test_unknown_switches_are_refused(one: Rig) -> None:
    """A typing error must not look like a fault that did nothing."""
    assert one.api.post("/_faults", json={"nonsense": 1}).status_code == 400
    assert one.api.post("/_faults", json={"snatch": 2}).json()["snatch"] == 2
    assert one.api.post("/_faults", json={"reset": True}).json() == {}
    assert one.api.post("/_clock", json={"advance": 5}).status_code == 200
