"""The calls of the Vast emulator, by plain HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.emulators.testing import until
from tests.emulators.vast.contract import Contract
from tests.emulators.vast.testing import ASK, NO_SPEC, Rig, has_spec, order, rig


@pytest.fixture
def one() -> Iterator[Rig]:
    with rig() as made:
        yield made


def _list(one: Rig, **query: Any) -> dict[str, Any]:
    given = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in query.items()
    }
    answer = one.api.get("/api/v1/instances/", params=given)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


@pytest.mark.parametrize("path", ["/api/v0/users/current", "/api/v0/users/current/"])
def test_a_slash_at_the_end_makes_no_difference(one: Rig, path: str) -> None:
    """Both forms are in use; `credit` is what can be spent."""
    assert one.api.get(path).json()["credit"] == 100


def test_both_prefixes_list(one: Rig) -> None:
    """v0 is deprecated and has no pages."""
    made = one.create()
    assert one.api.get("/api/v0/instances").json()["instances"][0]["id"] == made
    assert _list(one)["total_instances"] == 1


@pytest.mark.parametrize(
    ("query", "machines"),
    [
        ({"gpu_name": {"eq": "RTX A5000"}, "num_gpus": {"eq": 2}}, {31001, 31002}),
        ({"gpu_name": {"in": ["A40"]}, "num_gpus": {"gte": 4}}, {31007}),
        ({"num_gpus": {"eq": 1}, "geolocation": {"in": ["SE", "IS"]}}, {31005, 31007}),
        ({"num_gpus": {"eq": 8}, "gpu_ram": {"gt": 80_000}, "datacenter": {"eq": True}},
         {31008, 31010}),
        ({"gpu_name": {"eq": "RTX 4090"}, "inet_up": {"lt": 100}}, {31006}),
        ({"verified": {"eq": False}}, {31011}),
        ({"gpu_name": {"eq": "RTX_4090"}}, set()),
        ({"reliability": {"lte": 0.9}, "cuda_max_good": {"gte": 12.0}}, {31004}),
    ],
)  # fmt: skip
def test_filters_of_a_search(one: Rig, query: dict[str, Any], machines: set[int]) -> None:
    """At the top of the body, by operator; a GPU's name has a blank."""
    assert {offer["machine_id"] for offer in one.offers(**query)} == machines


def test_order_limit_and_the_price_of_storage(one: Rig) -> None:
    """Prices hold the storage that was asked about; a bid has another price."""
    query = {"gpu_name": {"eq": "RTX A5000"}, "num_gpus": {"eq": 1}, "machine_id": {"eq": 31001}}
    found = one.offers(**query, order=[["id", "asc"]], limit=1, allocated_storage=72)
    (first,) = found
    assert (first["id"], first["dph_total"]) == (ASK, pytest.approx(0.22 + 0.015))
    bid = one.offers(**query, type="bid", limit=1, allocated_storage=0)[0]
    assert (bid["dph_total"], bid["min_bid"]) == (pytest.approx(0.11), pytest.approx(0.11))
    body = {"select_cols": ["*"], "q": {**query, "limit": 1}}
    assert len(one.api.put("/api/v0/search/asks/", json=body).json()["offers"]) == 1


@pytest.mark.parametrize("query", [{"nonsense": {"eq": 1}}, {"gpu_ram": {"like": 1}}])
def test_an_unknown_filter_is_refused(one: Rig, query: dict[str, Any]) -> None:
    """And recorded."""
    assert one.api.post("/api/v0/bundles/", json=query).status_code == 400
    assert one.cloud.state["violations"][0]["kind"] == "rule"


def test_a_rented_offer_disappears_and_so_do_those_that_share_its_gpus(one: Rig) -> None:
    """Until it is destroyed; a stopped instance holds no GPU."""

    def there() -> set[int]:
        return {offer["id"] for offer in one.offers(machine_id={"eq": 31001}, limit=99)}

    before = there()
    made = one.create(ASK)
    assert before - there() == {3100110, 3100120, 3100140}
    one.api.put(f"/api/v0/instances/{made}/", json={"state": "stopped"})
    assert there() == before


@pytest.mark.parametrize(
    "changes",
    [
        {"disk": 7},
        {"disk": 501},
        {"env": "-e A=1"},
        {"env": {"A": 1}},
        {"env": {"A": "x" * 256}},
        {"label": "x" * 257},
        {"args": ["-c", "x" * 4090]},
        {"price": 0.0001},
        {"price": 129},
        {"runtype": "magic"},
        {"image_login": "-u me -p a b server"},
        {"image": None},
    ],
)
def test_what_a_create_call_may_not_hold(one: Rig, changes: dict[str, Any]) -> None:
    """400, and nothing is made."""
    answer = one.api.put(f"/api/v0/asks/{ASK}/", json=order(**changes))
    assert (answer.status_code, answer.json()["success"]) == (400, False)
    assert one.cloud.state["created_total"] == 0


def test_an_instance_has_what_the_sdk_touches(one: Rig) -> None:
    """Pairs of variables, times, and texts with stray blanks."""
    made = one.running(env={"A": "1", "-p 22:22": "1"})
    pod = one.pod(made)
    assert pod["extra_env"] == [["A", "1"], ["-p 22:22", "1"]]
    assert pod["start_date"] == one.cloud.clock.now() - 0.3
    assert pod["public_ipaddr"].endswith("\n")
    assert list(pod["ports"]) == ["22/tcp"]
    assert (pod["dph_base"], pod["dph_total"]) == (0.22, pytest.approx(0.22 + 20 * 0.15 / 720))


def test_an_instance_that_is_gone_is_null(one: Rig) -> None:
    """Or 404, by a switch; a second destroy is an error."""
    made = one.create()
    path = f"/api/v0/instances/{made}/"
    assert one.api.request("DELETE", path, json={}).json() == {"success": True}
    assert one.api.get(path).json() == {"instances": None}
    again = one.api.delete(path)
    assert (again.status_code, again.json()["error"]) == (404, "no_such_instance")
    one.cloud.set(missing_404=True, missing_destroy_200=True)
    assert one.api.get(path).status_code == 404
    assert (one.api.delete(path).status_code, one.api.delete(path).json()["success"]) == (
        200,
        False,
    )


def test_the_list_has_pages_of_25(one: Rig) -> None:
    """With tokens, filters and an order."""
    one.cloud.set(machines={
        str(number): {"gpu": "X", "gpus": 8, "gpu_ram": 1, "price": 0.01, "floor": 0.01}
        for number in range(1, 5)
    })  # fmt: skip
    for number in range(27):
        one.create((1 + number // 8) * 100 + 10 + number % 8, label=f"l{number % 2}")
    first = _list(one, limit=25, order_by=[{"col": "id", "dir": "asc"}])
    assert (first["instances_found"], first["total_instances"]) == (25, 27)
    assert first["label_counts"] == {"l0": 14, "l1": 13}
    second = _list(one, limit=25, after_token=first["next_token"])
    assert (second["instances_found"], second["next_token"]) == (2, None)
    assert _list(one, select_filters={"label": {"eq": "l1"}})["total_instances"] == 13
    for bad in ({"select_filters": '{"dph_total":{"gt":1}}'}, {"after_token": "x"}):
        assert one.api.get("/api/v1/instances/", params=bad).status_code == 400


def test_logs_are_uploaded_to_an_address_that_is_404_at_first(one: Rig) -> None:
    """Without a key; lines are cut at 500 characters."""
    made = one.running(args=["-c", "printf '%0600d\\n' 0; sleep 60"])
    until(lambda: one.cloud.lines(made))
    asked = one.api.put(f"/api/v0/instances/request_logs/{made}/", json={"tail": "10"})
    url = asked.json()["result_url"]
    statuses = [httpx.get(url).status_code for _ in range(2)]
    assert statuses == [404, 200]
    assert len(httpx.get(url).text) == 500


def test_labels_and_bids_change(one: Rig) -> None:
    """A bid of a machine that is not one is refused."""
    made, bid = one.create(), one.create(ASK + 1, price=0.2)
    path = f"/api/v0/instances/{made}/"
    assert one.api.put(path, json={"label": "new"}).json()["success"]
    assert one.pod(made)["label"] == "new"
    call = {"client_id": "me", "price": 0.3}
    assert one.api.put(f"/api/v0/instances/bid_price/{bid}/", json=call).status_code == 200
    assert one.pod(bid)["dph_base"] == 0.3
    assert one.api.put(f"/api/v0/instances/bid_price/{made}/", json=call).status_code == 400


def test_the_bill_is_gpus_while_running_storage_always_and_traffic() -> None:
    """Loading costs no GPU, a stop ends its cost, a destroy all."""
    with rig(credit=1000) as one:
        one.cloud.set(provision_seconds=0, created_seconds=0, image_pull_seconds=3600, image_gb=10)
        made = one.create(disk=72)
        one.cloud.advance(3600)
        one.cloud.advance(7200)
        one.api.put(f"/api/v0/instances/{made}/", json={"state": "stopped"})
        one.cloud.advance(3600)
        one.cloud.set(traffic={"id": made, "up": 5})
        one.api.request("DELETE", f"/api/v0/instances/{made}/", json={})
        one.cloud.advance(3600)
        expected = 2 * 0.22 + 4 * 0.015 + 10 * 0.002 + 5 * 0.003
        assert one.cloud.state["bill"][str(made)] == pytest.approx(expected)
        day = {"day": {"gte": 0, "lte": 2_000_000_000}}
        query = {"select_filters": json.dumps(day)}
        (charge,) = one.api.get("/api/v0/charges/", params=query).json()["results"]
        assert charge["amount"] == round(expected, 3)


def test_without_credit_everything_stops(one: Rig) -> None:
    """And nothing new is rented."""
    made = one.running()
    one.cloud.set(balance=0.001)
    one.cloud.advance(3600)
    assert one.pod(made)["actual_status"] == "exited"
    refused = one.api.put(f"/api/v0/asks/{ASK}/", json=order())
    assert (refused.status_code, "lacks credit" in refused.json()["msg"]) == (400, True)


@pytest.mark.skipif(not has_spec(), reason=NO_SPEC)
def test_everything_here_is_held_against_the_published_specifications(one: Rig) -> None:
    """Requests that break them are refused and recorded."""
    assert one.cloud.state["validated"]
    assert one.api.post("/api/v0/bundles/", json={"limit": "many"}).status_code == 400
    call = {"client_id": "me", "price": 0}
    assert one.api.put("/api/v0/instances/bid_price/1/", json=call).status_code == 400
    assert [found["kind"] for found in one.cloud.state["violations"]] == ["request", "request"]


def test_without_specifications_nothing_is_checked() -> None:
    """They are not part of the repository."""
    assert Contract(None).request_errors("POST", "/api/v0/bundles/", {}, {"limit": "x"}) == []
