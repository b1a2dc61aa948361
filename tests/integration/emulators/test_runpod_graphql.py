"""GraphQL of the emulator, by hand and through the real SDK."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.emulators.clock import write_time
from tests.emulators.runpod.testing import RTX_4090, Rig, rig
from tests.emulators.testing import NOON

CREATE = (
    "mutation create($input: PodFindAndDeployOnDemandInput!) "
    "{ podFindAndDeployOnDemand(input: $input) { id env machine { podHostId } } }"
)
TERMINATE = "mutation end($id: String!) { podTerminate(input: {podId: $id}) }"


@pytest.fixture
def one() -> Iterator[Rig]:
    with rig() as made:
        yield made
        assert made.cloud.state["violations"] == []


@pytest.fixture
def sdk(one: Rig, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The real package, pointed at the emulator as a user would."""
    runpod = importlib.import_module("runpod")
    monkeypatch.setattr(runpod, "api_key", one.cloud.key)
    monkeypatch.setenv("RUNPOD_API_BASE_URL", one.cloud.origin)
    return runpod


def wanted(**changes: Any) -> dict[str, Any]:
    return {"name": "axr-1", "imageName": "i", "gpuTypeId": RTX_4090, **changes}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_sdk_goes_through_a_pods_whole_life(one: Rig, sdk: Any) -> None:
    """create, get, list, stop, resume, terminate with what each of them returns."""
    made = sdk.create_pod("axr-1", "i", RTX_4090, env={"A": "b"}, ports="22/tcp, 80/http")
    pod = made["id"]
    assert (made["env"], bool(made["machine"]["podHostId"])) == (["A=b"], True)
    asked = [each["body"]["query"] for each in one.cloud.state["requests"]]
    assert "gpuTypes" in asked[0]
    assert "podFindAndDeployOnDemand" in asked[1]
    seen = sdk.get_pod(pod)
    assert (seen["desiredStatus"], seen["runtime"], seen["costPerHr"]) == ("RUNNING", None, 0.69)
    one.cloud.advance(10)
    (listed,) = sdk.get_pods()
    assert (listed["uptimeSeconds"], listed["ports"]) == (0, "22/tcp,80/http")
    assert [port["privatePort"] for port in listed["runtime"]["ports"]] == [22, 80]
    assert sdk.stop_pod(pod) == {"id": pod, "desiredStatus": "EXITED"}
    assert sdk.resume_pod(pod, 1)["id"] == pod
    assert sdk.terminate_pod(pod) is None
    assert sdk.get_pod(pod) is None
    with pytest.raises(sdk.error.QueryError, match="pod not found to terminate"):
        sdk.terminate_pod(pod)
    assert sdk.get_user()["networkVolumes"] == []
    assert {gpu["id"] for gpu in sdk.get_gpus()} >= {RTX_4090}
    assert sdk.get_gpu(RTX_4090)["lowestPrice"]["uninterruptablePrice"] == 0.69
    with pytest.raises(ValueError, match="No GPU found"):
        sdk.get_gpu("NVIDIA Nonsense")


def test_the_sdk_meets_refusals_as_it_does_in_the_world(
    one: Rig, sdk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Capacity is a query error, a quote breaks its document, a wrong key is told, 410 is not."""
    one.cloud.set(create_400_capacity=2)
    with pytest.raises(sdk.error.QueryError, match="no longer any instances"):
        sdk.create_pod("axr-1", "i", RTX_4090)
    with pytest.raises(sdk.error.QueryError, match="Syntax Error"):
        sdk.create_pod("axr-1", "i", RTX_4090, cloud_type="SECURE", env={"A": 'say "hi"'})
    one.cloud.set(graphql_410="json")
    with pytest.raises(KeyError):
        sdk.get_user()
    one.cloud.set(graphql_410=True)
    with pytest.raises(ValueError, match="Expecting value"):
        sdk.get_user()
    monkeypatch.setattr(sdk, "api_key", "wrong")
    with pytest.raises(sdk.error.AuthenticationError):
        sdk.get_user()


def test_variables_pass_any_value_unharmed(one: Rig) -> None:
    """What breaks an inline document is no matter for a variable."""
    value = 'say "hi" \\ }, { key: "X", value: "y"\n'
    answer = one.graphql(CREATE, input=wanted(env=[{"key": "A", "value": value}]))
    pod = answer.json()["data"]["podFindAndDeployOnDemand"]["id"]
    assert one.pod(pod)["env"] == {"A": value}


@pytest.mark.parametrize(
    ("query", "variables"),
    [
        ("{ myself { nonsense } }", {}),
        ("{ myself { id ", {}),
        ("{ __schema { types { name } } }", {}),
        ("mutation { podRentInterruptable(input: {bidPerGpu: 1.0}) { id } }", {}),
        (CREATE, {"input": wanted(bidPerGpu=1.0)}),
        (CREATE, {"input": wanted(env=[{"key": "A", "value": 1}])}),
        (CREATE, {}),
    ],
)
def test_what_does_not_fit_the_schema_is_400(
    one: Rig, query: str, variables: dict[str, Any]
) -> None:
    """With errors and no data, and nothing is made."""
    answer = one.graphql(query, **variables)
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["message"]
    assert one.cloud.state["created_total"] == 0


def test_what_a_resolver_refuses_is_200_with_errors(one: Rig) -> None:
    """With null data, and a code where the cloud has one."""
    answer = one.graphql(TERMINATE, id="nobody")
    assert (answer.status_code, answer.json()["data"]) == (200, {"podTerminate": None})
    assert answer.json()["errors"][0]["extensions"] == {"code": "POD_NOT_FOUND"}
    one.cloud.set(create_5xx_after=1)
    broken = one.graphql(CREATE, input=wanted())
    assert (broken.status_code, one.cloud.state["created_total"]) == (200, 1)
    assert broken.json()["errors"][0]["extensions"] == {"code": "INTERNAL_SERVER_ERROR"}


def test_a_pods_own_key_ends_its_own_pod_and_sees_nothing_else(one: Rig) -> None:
    """Unauthorized comes as 200; a pod that does not exist may be asked for."""
    mine, other = one.running(), one.running()
    with one.as_pod(mine) as api:

        def ask(query: str, **variables: Any) -> dict[str, Any]:
            answer = api.post("/graphql", json={"query": query, "variables": variables})
            assert answer.status_code == 200
            return dict(answer.json())

        see = "query see($id: String!) { pod(input: {podId: $id}) { id desiredStatus } }"
        assert ask(see, id=mine)["data"]["pod"]["id"] == mine
        assert ask(see, id=other)["errors"][0]["message"] == "Unauthorized"
        assert ask("{ myself { id } }")["errors"][0]["message"] == "Unauthorized"
        assert ask(TERMINATE, id=other)["errors"][0]["message"] == "Unauthorized"
        assert "not found" in ask(TERMINATE, id="nobody")["errors"][0]["message"]
        assert "errors" not in ask(TERMINATE, id=mine)
    assert [pod["id"] for pod in one.cloud.state["pods"]] == [other]


def test_keys_by_header_by_query_or_none_for_the_catalog(one: Rig) -> None:
    """The catalog is public; all else needs a key."""
    bare = {"Authorization": ""}
    gpus, me = {"query": "{ gpuTypes { id } }"}, {"query": "{ myself { clientBalance } }"}
    assert one.api.post("/graphql", json=gpus, headers=bare).status_code == 200
    assert one.api.post("/graphql", json=me, headers=bare).status_code == 401
    by_query = one.api.post(f"/graphql?api_key={one.cloud.key}", json=me, headers=bare)
    assert by_query.json() == {"data": {"myself": {"clientBalance": 100.0}}}


@pytest.mark.parametrize("ignored", [False, True])
def test_timers_end_a_pod_or_are_ignored(one: Rig, ignored: bool) -> None:
    """terminateAfter is honoured, unless the cloud takes it and forgets."""
    one.cloud.set(ignore_timers=ignored)
    one.graphql(CREATE, input=wanted(terminateAfter=write_time(NOON + 60)))
    one.cloud.advance(61)
    assert len(one.cloud.state["pods"]) == int(ignored)


def test_all_clouds_are_tried_in_turn(one: Rig) -> None:
    """cloudType ALL falls back to the community."""
    one.cloud.set(stock={RTX_4090: {"SECURE": 0, "COMMUNITY": 1}})
    one.graphql(CREATE, input=wanted())
    (pod,) = one.cloud.state["pods"]
    assert (pod["cloud"], pod["cost"]) == ("COMMUNITY", 0.34)
