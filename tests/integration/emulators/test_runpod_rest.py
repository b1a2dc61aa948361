"""REST v2 of the emulator: catalog, pods, keys, volumes, logs."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.emulators.runpod.testing import RTX_4090, Rig, order, rig


@pytest.fixture
def one() -> Iterator[Rig]:
    with rig() as made:
        yield made
        bugs = [each for each in made.cloud.state["violations"] if each["kind"] in BUGS]
        assert bugs == []


BUGS = ("response", "emulator")
AVAILABLE = {"include": "AVAILABILITY", "product": "POD"}


def gpus(one: Rig, **query: str) -> dict[str, dict[str, Any]]:
    answer = one.api.get("/v2/catalog/gpus", params=query)
    assert answer.status_code == 200, answer.text
    return {gpu["id"]: gpu for gpu in answer.json()["gpus"]}


def test_a_pod_goes_through_the_states_by_the_clock(one: Rig) -> None:
    """PROVISIONING with runtime {}, STARTING with null, RUNNING with an uptime that rises."""
    pod = one.create()
    first = one.pod(pod)
    assert (first["status"], first["runtime"], first["startedAt"]) == ("PROVISIONING", {}, None)
    one.cloud.advance(0.1)
    assert (one.pod(pod)["status"], one.pod(pod)["runtime"]) == ("STARTING", None)
    one.cloud.advance(0.1)
    assert (one.pod(pod)["status"], one.pod(pod)["runtime"]["uptime"]) == ("RUNNING", 0)
    one.cloud.advance(61.5)
    assert one.pod(pod)["runtime"]["uptime"] == 61


def test_create_is_not_idempotent_and_names_are_not_unique(one: Rig) -> None:
    """The same body twice is two pods."""
    assert one.create() != one.create()
    names = [pod["name"] for pod in one.api.get("/v2/pods").json()["pods"]]
    assert names == ["axr-1", "axr-1"]
    assert one.cloud.state["created_total"] == 2


def test_stop_and_start_keep_the_pod_and_its_price(one: Rig) -> None:
    """EXITED costs nothing an hour; the moves that a state allows are in `actions`, else 409."""
    pod = one.running(mounts={"persistent": {"size": 20, "path": "/workspace"}})

    def act(action: str) -> httpx.Response:
        return one.api.post(f"/v2/pods/{pod}/action", json={"action": action})

    assert act("start").status_code == 409
    stopped = act("stop").json()
    assert (stopped["status"], stopped["cost"], stopped["runtime"]) == ("EXITED", 0, None)
    assert stopped["actions"] == ["start", "terminate"]
    assert act("restart").status_code == 409
    assert act("start").json()["status"] == "PROVISIONING"
    one.cloud.advance(1)
    assert (one.pod(pod)["status"], one.pod(pod)["cost"]) == ("RUNNING", 0.69)
    assert act("terminate").status_code == 204


def test_delete_answers_204_without_a_body_and_then_404(one: Rig) -> None:
    """The ended pod is in neither GET nor the list, and the emulator remembers it."""
    pod = one.running()
    answer = one.api.delete(f"/v2/pods/{pod}")
    assert (answer.status_code, answer.content) == (204, b"")
    assert one.api.get(f"/v2/pods/{pod}").status_code == 404
    assert one.api.delete(f"/v2/pods/{pod}").status_code == 404
    assert one.api.get("/v2/pods").json() == {"pods": []}
    (ended,) = one.cloud.state["ended"]
    assert (ended["id"], ended["status"], ended["reason"]) == (pod, "TERMINATED", "account")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": ""}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"User-Agent": "Python-urllib/3.11"}, 403),
    ],
)
def test_who_may_not_call_is_refused(one: Rig, headers: dict[str, str], status: int) -> None:
    """A missing or wrong key, and the agent that the edge does not let through."""
    assert one.api.get("/v2/pods", headers=headers).status_code == status


def test_the_agent_of_urllib_is_refused_in_earnest(one: Rig) -> None:
    """A bare urlopen gets the edge's refusal, however good its key."""
    request = urllib.request.Request(
        f"{one.cloud.url}/pods", headers={"Authorization": f"Bearer {one.cloud.key}"}
    )
    with pytest.raises(urllib.error.HTTPError, match="403") as refused:
        urllib.request.urlopen(request)
    with refused.value as answer:
        assert answer.read() == b"error code: 1010"


def test_a_pods_own_key_reads_and_ends_its_own_pod_only(one: Rig) -> None:
    """All else is 403; after its end the key is still known and finds nothing."""
    mine, other = one.running(), one.running()
    with one.as_pod(mine) as api:
        assert api.get(f"/v2/pods/{mine}").status_code == 200
        assert api.get(f"/v2/pods/{other}").status_code == 403
        assert api.delete(f"/v2/pods/{other}").status_code == 403
        assert api.get("/v2/pods").status_code == 403
        assert api.post("/v2/pods", json=order()).status_code == 403
        one.cloud.set(scoped_key_v2=False)
        assert api.delete(f"/v2/pods/{mine}").status_code == 403
        one.cloud.set(scoped_key_v2=True)
        assert api.delete(f"/v2/pods/{mine}").status_code == 204
        assert api.delete(f"/v2/pods/{mine}").status_code == 404


@pytest.mark.parametrize(
    ("changes", "status", "part"),
    [
        ({"gpu": None}, 400, "exactly one"),
        ({"cpu": {"id": "cpu3c", "vcpuCount": 2}}, 400, "exactly one"),
        ({"gpu": {"id": "NVIDIA Nonsense"}}, 400, "unknown GPU"),
        (
            {
                "gpu": {
                    "id": RTX_4090,
                    "minCudaVersion": "12.4",
                    "allowedCudaVersions": ["12.4"],
                }
            },
            400,
            "minCudaVersion",
        ),
        ({"ports": ["53/udp"]}, 422, "not valid"),
        ({"env": {f"V{number}": "" for number in range(51)}}, 400, "variables"),
        ({"args": "sh -c 'open"}, 400, "args"),
        ({"templateId": "nobody"}, 404, "template"),
        ({"mounts": {"network": [{"volumeId": "nobody", "path": "/w"}]}}, 404, "volume"),
    ],
)
def test_orders_that_break_a_rule_make_no_pod(
    one: Rig, changes: dict[str, Any], status: int, part: str
) -> None:
    """Rules beyond the schema, each with its status and a problem that names it."""
    answer = one.api.post("/v2/pods", json=order(**changes))
    assert (answer.status_code, answer.headers["content-type"]) == (
        status,
        "application/problem+json",
    )
    assert part in answer.json()["detail"]
    assert one.cloud.state["created_total"] == 0


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"include": "AVAILABILITY"}, 400),
        ({"product": "POD"}, 400),
        ({"count": "2"}, 400),
        ({**AVAILABLE, "cudaVersions": "12.4", "minCudaVersion": "12"}, 400),
        ({**AVAILABLE, "nonsense": "1"}, 200),
        ({"nonsense": "1"}, 200),
        ({}, 200),
    ],
)
def test_catalog_queries(one: Rig, query: dict[str, str], status: int) -> None:
    """`product` goes with `include`, and unknown parameters are ignored without a word."""
    assert one.api.get("/v2/catalog/gpus", params=query).status_code == status


def test_availability_follows_the_stock_and_our_own_pods(one: Rig) -> None:
    """Levels are by how many such pods fit; without any there are no data centers in the row."""
    assert "availability" not in gpus(one)[RTX_4090]
    one.cloud.set(stock={RTX_4090: {"SECURE": 2, "COMMUNITY": {"US-TX-3": 20}}})
    assert gpus(one, **AVAILABLE)[RTX_4090]["availability"] == "LOW"
    one.create(gpu={"id": RTX_4090, "count": 2})
    row = gpus(one, **AVAILABLE)[RTX_4090]
    assert (row["availability"], "dataCenters" in row) == ("NONE", False)
    elsewhere = gpus(one, **AVAILABLE, cloud="COMMUNITY", count="4")[RTX_4090]
    assert elsewhere["availability"] == "MEDIUM"
    assert [center["id"] for center in elsewhere["dataCenters"]] == ["US-TX-3"]
    refused = one.api.post("/v2/pods", json=order())
    assert refused.status_code == 400
    assert "no longer any instances available" in refused.json()["detail"]


def test_a_gpu_is_asked_for_by_its_encoded_name(one: Rig) -> None:
    """Blanks and all; one that does not exist is 404."""
    assert one.api.get("/v2/catalog/gpus/NVIDIA%20GeForce%20RTX%204090").json()["memory"] == 24
    assert one.api.get("/v2/catalog/gpus/NVIDIA%20Nonsense").status_code == 404


@pytest.mark.parametrize(
    ("changes", "center", "cuda"),
    [
        ({}, "US-KS-2", "12.8"),
        ({"dataCenterIds": ["EU-RO-1"]}, "EU-RO-1", "13.0"),
        ({"dataCenterIds": ["EU-SE-1"]}, None, None),
        ({"gpu": {"id": RTX_4090, "minCudaVersion": "12.9"}}, "EU-RO-1", "13.0"),
        ({"gpu": {"id": RTX_4090, "allowedCudaVersions": ["12.4"]}}, "US-TX-3", "12.4"),
        ({"gpu": {"id": RTX_4090, "allowedCudaVersions": ["11.8"]}}, None, None),
        ({"gpu": {"id": "NVIDIA A40"}, "cloud": "COMMUNITY"}, None, None),
    ],
)
def test_where_a_pod_lands(
    one: Rig, changes: dict[str, Any], center: str | None, cuda: str | None
) -> None:
    """Place and CUDA are enforced; what nobody has looks like a lack of capacity."""
    answer = one.api.post("/v2/pods", json=order(**changes))
    made = answer.json()
    assert answer.status_code == (400 if center is None else 201)
    assert (made.get("dataCenterId"), made.get("cudaVersion")) == (center, cuda)


def test_a_network_volume_pulls_the_pod_to_its_data_center(one: Rig) -> None:
    """It is made, attached, not deleted while in use, and it outlives the pod."""
    wanted = {"name": "data", "size": 50, "dataCenter": "EUR-IS-1"}
    volume = one.api.post("/v2/network-volumes", json=wanted).json()
    mounts = {"network": [{"volumeId": volume["id"], "path": "/workspace"}]}
    pod = one.create(mounts=mounts)
    assert one.pod(pod)["dataCenterId"] == "EUR-IS-1"
    assert one.api.delete(f"/v2/network-volumes/{volume['id']}").status_code == 400
    assert one.api.post("/v2/pods", json=order(mounts=mounts, cloud="COMMUNITY")).is_client_error
    one.api.delete(f"/v2/pods/{pod}")
    assert one.api.get("/v2/network-volumes").json() == {"networkVolumes": [volume]}
    assert one.api.delete(f"/v2/network-volumes/{volume['id']}").status_code == 204


def test_a_template_gives_what_the_order_leaves_open(one: Rig) -> None:
    """env is joined name by name, all else is the order's or the template's."""
    template = {"image": "theirs", "disk": 7, "env": {"A": "1", "B": "2"}, "ports": ["80/http"]}
    one.cloud.set(templates={"t1": template})
    made = one.pod(one.create(templateId="t1", image=None, disk=9, env={"B": "3"}))
    assert (made["image"], made["disk"], made["env"]) == ("theirs", 9, {"A": "1", "B": "3"})
    assert (made["ports"], made["template"]) == (["80/http"], None)


def test_a_patch_changes_the_pod_and_starts_its_container_anew(one: Rig) -> None:
    """A lock only forbids to stop."""
    pod = one.running()
    changed = one.api.patch(f"/v2/pods/{pod}", json={"env": {"A": "b"}, "locked": True}).json()
    assert (changed["env"], changed["locked"]) == ({"A": "b"}, True)
    assert one.cloud.state["pods"][0]["boots"] == 2
    stop = one.api.post(f"/v2/pods/{pod}/action", json={"action": "stop"})
    assert stop.status_code == 409


def events(
    one: Rig, pod: str, number: int, query: str = "", last: str = ""
) -> list[dict[str, Any]]:
    """The first events of the stream, their data with their id."""
    found: list[dict[str, Any]] = []
    headers = {"Last-Event-ID": last} if last else {}
    url = f"/v2/pods/{pod}/logs{query}"
    with one.api.stream("GET", url, headers=headers) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        moment = ""
        for line in answer.iter_lines():
            if line.startswith("id: "):
                moment = line.removeprefix("id: ")
            elif line.startswith("data: "):
                found.append({**json.loads(line.removeprefix("data: ")), "id": moment})
            if len(found) == number:
                break
    return found


def test_logs_stream_and_go_on_after_the_last_event(one: Rig) -> None:
    """Last-Event-ID beats `tail`; a reader gets each line once."""
    pod = one.running(args="sh -c 'echo one; echo two; echo three; exec sleep 60'")
    lines = events(one, pod, 3, "?source=container")
    assert [line["line"] for line in lines] == ["one", "two", "three"]
    assert events(one, pod, 1, "?source=container&tail=1") == lines[2:]
    assert events(one, pod, 1, "?source=container&tail=1", lines[0]["id"]) == [lines[1]]
    assert events(one, pod, 2, "?source=system")[-1]["line"] == "start container, boot 1"


def test_ssh_keys_are_replaced_as_a_whole(one: Rig) -> None:
    """PUT answers with what GET then says."""
    keys = {"keys": ["ssh-ed25519 AAAA me"]}
    assert one.api.put("/v2/account/ssh-keys", json=keys).json() == keys
    assert one.api.get("/v2/account/ssh-keys").json() == keys


def test_centers_tell_what_they_have(one: Rig) -> None:
    """By region, with the availability only when it is asked for."""
    query = {"regions": "EUROPE", "include": "GPU_AVAILABILITY"}
    rows = one.api.get("/v2/catalog/datacenters", params=query).json()["dataCenters"]
    assert {row["id"] for row in rows} == {"EU-RO-1", "EUR-IS-1", "EU-SE-1"}
    assert {"id": "NVIDIA H200", "name": "H200 SXM", "availability": "HIGH"} in rows[1][
        "gpuAvailability"
    ]
    assert one.api.get("/v2/catalog/datacenters/XX-1").status_code == 404
