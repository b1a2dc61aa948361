"""Each switch of the emulator does what the package's docstring says."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx
import pytest

from tests.emulators.runpod.faults import CAPACITY_TEXTS, DEFAULTS
from tests.emulators.runpod.testing import RTX_4090, Rig, order, rig
from tests.emulators.testing import alive


@pytest.fixture
def one() -> Iterator[Rig]:
    with rig() as made:
        yield made
        assert made.cloud.state["violations"] == []


def post(one: Rig) -> httpx.Response:
    return one.api.post("/v2/pods", json=order())


def ids(one: Rig) -> list[str]:
    return [pod["id"] for pod in one.api.get("/v2/pods").json()["pods"]]


def test_create_answers_500_although_the_pod_exists(one: Rig) -> None:
    """As often as was asked for."""
    one.cloud.set(create_5xx_after=1)
    assert post(one).status_code == 500
    assert len(ids(one)) == 1
    assert post(one).status_code == 201


def test_create_breaks_the_connection_although_the_pod_exists(one: Rig) -> None:
    """At once or after a hold, which a client meets as its own timeout."""
    one.cloud.set(create_timeout_after=2)
    with pytest.raises(httpx.RemoteProtocolError):
        post(one)
    one.cloud.set(create_timeout_hold=0.3)
    with pytest.raises(httpx.ReadTimeout):
        one.api.post("/v2/pods", json=order(), timeout=0.1)
    assert len(ids(one)) == 2
    assert [each["status"] for each in one.cloud.state["requests"]] == [None, None, 200]


def test_capacity_is_refused_a_number_of_times_for_one_gpu_or_always(one: Rig) -> None:
    """400 with the text, nothing made."""
    one.cloud.set(create_400_capacity=2)
    answers = [post(one) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [400, 400, 201]
    assert answers[0].json()["detail"] == CAPACITY_TEXTS["standard"]
    one.cloud.set(create_400_capacity={RTX_4090: True})
    assert post(one).status_code == 400
    one.create(gpu={"id": "NVIDIA A40"})


def test_capacity_texts_come_in_turn(one: Rig) -> None:
    """Named ones, and any other."""
    one.cloud.set(create_400_capacity=True, capacity_text=["disk", "machine", "no luck"])
    texts = [post(one).json()["detail"] for _ in range(4)]
    disk, machine = CAPACITY_TEXTS["disk"], CAPACITY_TEXTS["machine"]
    assert texts == [disk, machine, "no luck", disk]


def test_the_catalog_may_be_stale(one: Rig) -> None:
    """HIGH, and refused all the same."""
    one.cloud.set(stale_high=[RTX_4090], stock={RTX_4090: {"SECURE": 0}})
    query = {"include": "AVAILABILITY", "product": "POD"}
    row = one.api.get(f"/v2/catalog/gpus/{RTX_4090}", params=query).json()
    assert row["availability"] == "HIGH"
    assert post(one).status_code == 400


@pytest.mark.parametrize("status", [401, 402, 403, 429, 503])
def test_create_may_be_refused_with_any_status(one: Rig, status: int) -> None:
    """Before anything is made; 429 says when to come again."""
    one.cloud.set(create_status={"status": status, "times": 1, "retry_after": 2})
    answer = post(one)
    assert (answer.status_code, answer.headers["retry-after"]) == (status, "2")
    assert ids(one) == []
    one.create()


def test_any_path_may_fail(one: Rig) -> None:
    """By method and pattern; a hang of status 0 only delays the right answer."""
    fault = {"path": "/catalog/", "method": "GET", "status": 502, "times": 1}
    one.cloud.set(status=[fault, {"path": "^/v2/pods$", "status": 0, "hang": 0.1}])
    assert one.api.get("/v2/catalog/gpus").status_code == 502
    assert one.api.get("/v2/catalog/gpus").status_code == 200
    start = time.monotonic()
    assert ids(one) == []
    assert time.monotonic() - start >= 0.1


def test_listing_and_deleting_fail_on_their_own(one: Rig) -> None:
    """A number lasts, an object is used up."""
    pod = one.create()
    one.cloud.set(list_status=401, delete_status={"status": 429, "times": 2, "retry_after": 1})
    assert one.api.get("/v2/pods").status_code == 401
    assert one.api.get(f"/v2/pods/{pod}").status_code == 200
    action = one.api.post(f"/v2/pods/{pod}/action", json={"action": "terminate"})
    assert action.status_code == 429
    assert [one.api.delete(f"/v2/pods/{pod}").status_code for _ in range(2)] == [429, 204]
    assert one.api.get("/v2/pods").status_code == 401


def test_a_new_pod_is_not_seen_for_a_while(one: Rig) -> None:
    """Neither GET nor DELETE nor the list find it; none of them proves that it is not there."""
    one.cloud.set(visibility_lag=5)
    pod = one.create()
    url = f"/v2/pods/{pod}"
    assert (one.api.get(url).status_code, one.api.delete(url).status_code) == (404, 404)
    assert ids(one) == []
    one.cloud.advance(5)
    assert ids(one) == [pod]


def test_an_ended_pod_is_still_listed_for_a_while(one: Rig) -> None:
    """As it was, or as TERMINATED; its processes are gone all the same."""
    pod = one.running()
    pid = one.cloud.state["pods"][0]["pid"]
    one.cloud.set(delete_lag=5)
    assert one.api.delete(f"/v2/pods/{pod}").status_code == 204
    assert not alive(pid)
    assert one.pod(pod)["status"] == "RUNNING"
    assert one.api.delete(f"/v2/pods/{pod}").status_code == 404
    one.cloud.set(delete_lag_status="TERMINATED")
    assert (one.pod(pod)["status"], one.pod(pod)["cost"]) == ("TERMINATED", 0)
    one.cloud.advance(5)
    assert ids(one) == []


def test_the_list_has_pages(one: Rig) -> None:
    """A reader that stops at the first misses pods."""
    made = [one.create() for _ in range(5)]
    one.cloud.set(pages=2)
    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        answer = one.api.get("/v2/pods", params={"limit": 1000, "cursor": cursor}).json()
        seen += [pod["id"] for pod in answer["pods"]]
        assert answer["pagination"]["hasNextPage"] == (
            answer["pagination"]["nextCursor"] is not None
        )
        cursor = answer["pagination"]["nextCursor"]
    assert sorted(seen) == sorted(made)


def test_a_pod_never_gets_ready(one: Rig) -> None:
    """Or never has a machine; the next one does."""
    one.cloud.set(never_ready=1)
    stuck, fine = one.create(), one.create()
    one.cloud.set(empty_machine=1)
    empty = one.create()
    one.cloud.advance(10_000)
    assert (one.pod(stuck)["status"], one.pod(fine)["status"]) == ("PROVISIONING", "RUNNING")
    shown = one.pod(empty)
    assert (shown["dataCenterId"], shown["cudaVersion"], shown["runtime"]) == (None, None, None)


def test_boot_and_pull_take_their_time(one: Rig) -> None:
    """What was set when the pod was made."""
    one.cloud.set(boot_seconds=60, image_pull_seconds=600)
    pod = one.create()
    one.cloud.set(reset=True)
    one.cloud.advance(59)
    assert one.pod(pod)["status"] == "PROVISIONING"
    one.cloud.advance(600)
    assert one.pod(pod)["status"] == "STARTING"
    one.cloud.advance(1)
    assert one.pod(pod)["status"] == "RUNNING"


def test_telemetry_may_be_missing(one: Rig) -> None:
    """All of it for a while, or the numbers."""
    one.cloud.set(runtime_null_for=30)
    pod = one.running()
    assert (one.pod(pod)["status"], one.pod(pod)["runtime"]) == ("RUNNING", None)
    one.cloud.advance(30)
    assert one.pod(pod)["runtime"]["gpus"] == [{"util": 90, "memoryUtil": 60}]
    one.cloud.set(telemetry_null=True)
    assert one.pod(pod)["runtime"] == {"uptime": 30, "ports": []}


def test_a_host_is_lost(one: Rig) -> None:
    """Its processes are gone; the API goes on as if not, or says 404."""
    stale, gone = one.running(), one.running()
    pids = [pod["pid"] for pod in one.cloud.state["pods"]]
    one.cloud.set(host_lost=stale)
    one.cloud.advance(100)
    assert (one.pod(stale)["status"], one.pod(stale)["runtime"]["uptime"]) == ("RUNNING", 0)
    one.cloud.set(host_lost_mode="404", host_lost="all")
    assert one.api.get(f"/v2/pods/{gone}").status_code == 404
    assert ids(one) == []
    assert not any(map(alive, pids))


def test_the_owner_ends_a_pod_or_restarts_its_container(one: Rig) -> None:
    """By POST /_faults, as from the web console."""
    pod = one.running()
    assert one.api.post("/_faults", json={"restart_container": pod}).status_code == 200
    assert one.cloud.state["pods"][0]["boots"] == 2
    assert one.api.post("/_faults", json={"kill_pod": pod}).status_code == 200
    assert one.cloud.state["ended"][0]["reason"] == "console"
    assert one.api.post("/_faults", json={"kill_pod": pod}).status_code == 400


def test_a_start_may_find_no_gpus(one: Rig) -> None:
    """The host is full, or the pod comes back without."""
    url = f"/v2/pods/{one.running()}/action"
    one.api.post(url, json={"action": "stop"})
    one.cloud.set(resume_full=1, zero_gpus=1)
    full = one.api.post(url, json={"action": "start"})
    assert (full.status_code, "free GPUs" in full.text) == (400, True)
    answer = one.api.post(url, json={"action": "start"})
    assert answer.status_code == 200
    assert "gpu" not in answer.json()


def test_the_accounts_key_may_lack_a_right(one: Rig) -> None:
    """All of them, or by method and path."""
    one.cloud.set(key_scope_403=["DELETE "])
    pod = one.create()
    assert one.api.delete(f"/v2/pods/{pod}").status_code == 403
    one.cloud.set(key_scope_403=True)
    assert one.api.get("/v2/pods").status_code == 403
    assert "Unauthorized" in one.graphql("{ myself { id } }").text


def test_reset_clears_and_unknown_switches_are_refused(one: Rig) -> None:
    """A typo in a test must not pass for a fault that does nothing."""
    one.api.post("/_faults", json={"list_status": 500})
    assert one.api.get("/_faults").json() == {"list_status": 500}
    assert one.api.post("/_faults", json={"reset": True}).json() == {}
    assert ids(one) == []
    with pytest.raises(ValueError, match="no_such_switch"):
        one.cloud.set(no_such_switch=1)


def test_every_switch_is_documented() -> None:
    """In the docstring of the package."""
    from tests.emulators import runpod

    assert runpod.__doc__ is not None
    assert [name for name in DEFAULTS if name not in runpod.__doc__] == []
