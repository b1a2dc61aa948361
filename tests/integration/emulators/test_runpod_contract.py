"""The emulator against the published specification: what is wrong is caught, on both sides."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.runpod.contract import Contract
from tests.emulators.runpod.testing import NO_SPEC, RTX_4090, Rig, has_spec, order, rig

needs_spec = pytest.mark.skipif(not has_spec(), reason=NO_SPEC)

FULL = order(
    args="sleep 60",
    disk=20,
    env={"A": "b"},
    ports=["22/tcp"],
    registry=None,
    cloud="SECURE",
    dataCenterIds=["US-KS-2"],
    globalNetworking=False,
    mounts={"persistent": {"size": 20, "path": "/workspace"}},
    startJupyter=False,
    startSsh=True,
)
MUTATED: list[dict[str, Any]] = [
    {"name": ""},
    {"name": None},
    {"image": 5},
    {"gpu": {"count": 1}},
    {"gpu": {"id": RTX_4090, "count": 0}},
    {"gpu": {"id": RTX_4090, "count": "1"}},
    {"gpu": {"id": RTX_4090, "gpuCount": 1}},
    {"gpu": {"id": RTX_4090, "minCudaVersion": "12"}},
    {"gpu": [RTX_4090]},
    {"args": ["sleep", "60"]},
    {"disk": 0},
    {"disk": 20.5},
    {"env": {"A": 1}},
    {"env": {"A": None}},
    {"env": [{"key": "A", "value": "b"}]},
    {"ports": "22/tcp"},
    {"cloud": "ALL"},
    {"dataCenterIds": "US-KS-2"},
    {"globalNetworking": "no"},
    {"mounts": {"persistent": {"size": 5, "path": "/workspace"}}},
    {"mounts": {"persistent": {"size": 20}}},
    {"mounts": {"volume": {}}},
    {"startJupyter": 1},
    {"startSsh": "true"},
    {"terminateAfter": "2026-12-01T00:00:00Z"},
    {"gpuTypeId": RTX_4090},
    {"interruptible": True},
    {"dockerArgs": ""},
]


@pytest.fixture
def one() -> Iterator[Rig]:
    with rig() as made:
        yield made


@needs_spec
def test_a_full_order_is_valid(one: Rig) -> None:
    """Every field that can be sent, in its right form."""
    assert one.api.post("/v2/pods", json=FULL).status_code == 201
    assert one.cloud.state["violations"] == []


@needs_spec
def test_any_field_of_the_wrong_form_is_refused(one: Rig) -> None:
    """422 with what is wrong, no pod, and a violation on record for each."""
    for changes in MUTATED:
        answer = one.api.post("/v2/pods", json={**FULL, **changes})
        assert answer.status_code == 422, changes
        assert answer.json()["errors"], changes
    state = one.cloud.state
    assert state["created_total"] == 0
    assert [each["kind"] for each in state["violations"]] == ["request"] * len(MUTATED)


@needs_spec
def test_queries_bodies_and_media_types_are_held_against_it_too(one: Rig) -> None:
    """A malformed parameter, a closed action body, a form instead of JSON."""
    available = {"include": "AVAILABILITY", "product": "POD"}
    for query in ({"count": "two"}, {"countryCodes": "fr"}, {"cloud": "ALL"}, {"include": "ALL"}):
        answer = one.api.get("/v2/catalog/gpus", params={**available, **query})
        assert answer.status_code == 422, query
    pod = one.create()
    action = one.api.post(f"/v2/pods/{pod}/action", json={"action": "stop", "force": True})
    assert action.status_code == 422
    assert one.api.patch(f"/v2/pods/{pod}", json={"cloud": "SECURE"}).status_code == 422
    assert one.api.post("/v2/pods", data={"name": "a"}).status_code == 422
    billing = one.api.get("/v2/billing/pods", params={"startTime": "yesterday"})
    assert billing.status_code == 422


@needs_spec
@pytest.mark.parametrize(
    "changes", [{"cost": "0.69"}, {"status": "PULLING"}, {"createdAt": "noon"}, {"env": None}]
)
def test_a_wrong_answer_is_a_bug_of_the_emulator(
    one: Rig, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    """It becomes a 500 and is on record, so that no test builds on it."""
    pod = one.create()
    right = one.cloud.account.view
    monkeypatch.setattr(one.cloud.account, "view", lambda pod: {**right(pod), **changes})
    assert one.api.get(f"/v2/pods/{pod}").status_code == 500
    assert [each["kind"] for each in one.cloud.state["violations"]] == ["response"]


def test_without_a_specification_nothing_is_validated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state says so, and the emulator works."""
    monkeypatch.setenv("AXR_SHARED", str(tmp_path))
    with rig() as one:
        one.create(unknown=True)
        assert one.cloud.state["validated"] is False


def test_a_contract_without_specification_passes_everything() -> None:
    """As it must where the file is not there."""
    contract = Contract(None)
    assert contract.request_errors("POST", "/v2/pods", {}, "", b"") == []
    assert contract.response_errors("POST", "/v2/pods", 299, None, None) == []
