"""A pod's worker, client and sockets through the gateway, in front of a real Prefect server that
asks for credentials.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import httpx
import pytest
from prefect.client.orchestration import get_client
from prefect.exceptions import PrefectHTTPStatusError
from prefect.settings import (
    PREFECT_API_URL,
    PREFECT_CLIENT_CUSTOM_HEADERS,
    PREFECT_CLIENT_MAX_RETRIES,
    temporary_settings,
)
from prefect.states import Completed
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

from runner.home import REPOSITORY
from runner.tokens import gateway_key, pod_token, push_token

pytestmark = pytest.mark.integration

AUTH = "admin:of-the-server"
FLOWS = """
import os, time
from prefect import flow, task
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.events import emit_event

@task
def noted(x):
    print("said in a task")
    return x

@flow(log_prints=True)
def work(run: str):
    noted(1)
    made = create_progress_artifact(1.0, key=f"progress-{run}", description="begun")
    update_progress_artifact(made, 100.0, description="done")
    emit_event("axolotl.run.noted", resource={"prefect.resource.id": f"axolotl.run.{run}"})
    print("said in the flow")

@flow(log_prints=True)
def wait():
    print("waiting")
    while True:
        time.sleep(0.2)
"""


@dataclass
class Side:
    """The server, reached directly, and the gateway in front of it."""

    folder: Path
    api: str
    gateway: str
    key: bytes
    flow: UUID
    deployments: dict[str, str]

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """A request to the server itself, with its own credentials; again while SQLite is busy."""
        user, _, password = AUTH.partition(":")
        for _ in range(20):
            answer = httpx.request(
                method, f"{self.api}/{path}", json=body, auth=(user, password), timeout=30
            )
            if answer.status_code != 503:
                break
            time.sleep(0.1)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def start(self, step: str, run: str, **more: Any) -> str:
        """A flow run on the run's own queue, as the parent starts it."""
        body = {"work_queue_name": f"axr-{run}", "tags": [f"run:{run}"], **more}
        path = f"deployments/{self.deployments[step]}/create_flow_run"
        return str(self.call("POST", path, body)["id"])

    def state(self, flow_run: str) -> str:
        """The name of its state on the server."""
        return str(self.call("GET", f"flow_runs/{flow_run}")["state"]["name"])

    def events(self, **resource: Any) -> list[dict[str, Any]]:
        """The events of a resource that the server has stored."""
        body = {"filter": {"any_resource": resource}, "limit": 50}
        found: list[dict[str, Any]] = self.call("POST", "events/filter", body)["events"]
        return found

    def token(self, run: str) -> str:
        """A token that holds for a while."""
        return pod_token(self.key, run, time.time() + 600)

    @property
    def socket(self) -> str:
        """The gateway's address for sockets."""
        return self.gateway.replace("http", "ws", 1) + "/api"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _clean(**more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "AXR_"))}
    return {**kept, "PREFECT_SERVER_ANALYTICS_ENABLED": "false", **more}


@contextmanager
def _running(log: Path, command: list[str], environment: dict[str, str]) -> Iterator[None]:
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=REPOSITORY,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            if process.poll() is None:
                os.killpg(process.pid, number)
                try:
                    process.wait(8)
                except subprocess.TimeoutExpired:
                    continue


def _wait(what: str, ready: Callable[[], object], side: Path, *, within: float = 40) -> None:
    deadline = time.monotonic() + within
    while True:
        try:
            if ready():
                return
        except httpx.HTTPError:
            pass  # still starting
        if time.monotonic() > deadline:
            logs = [f"--- {f.name}\n{f.read_text()[-2500:]}" for f in side.glob("*.log")]
            pytest.fail(f"not within {within:.0f} s: {what}\n" + "\n".join(logs))
        time.sleep(0.2)


def _answers(url: str) -> Callable[[], bool]:
    return lambda: httpx.get(f"{url}/health", timeout=5).is_success


@pytest.fixture(scope="module")
def side(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    """A server with a pool, two deployments and no gateway yet."""
    folder = tmp_path_factory.mktemp("gateway")
    (folder / "pod_flows.py").write_text(FLOWS)
    port = _free_port()
    environment = _clean(PREFECT_HOME=str(folder / "prefect"), PREFECT_SERVER_API_AUTH_STRING=AUTH)
    command = ["prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with _running(folder / "server.log", command, environment):
        made = Side(
            folder,
            f"http://127.0.0.1:{port}/api",
            f"http://127.0.0.1:{_free_port()}",
            gateway_key(folder / "home" / "gateway.key"),
            uuid4(),
            {},
        )
        _wait("the server", _answers(made.api), folder, within=90)
        _register(made)
        yield made


def _register(side: Side) -> None:
    from prefect.workers.process import ProcessWorker

    pool = {
        "name": "pods",
        "type": "process",
        "base_job_template": ProcessWorker.get_default_base_job_template(),
    }
    side.call("POST", "work_pools/", pool)
    for step in ("work", "wait"):
        flow = side.call("POST", "flows/", {"name": step})["id"]
        body = {
            "name": "pod",
            "flow_id": flow,
            "work_pool_name": "pods",
            "entrypoint": f"pod_flows.{step}",
            "path": str(side.folder),
        }
        side.deployments[step] = side.call("POST", "deployments/", body)["id"]
        side.flow = UUID(flow)


@contextmanager
def _gateway(side: Side) -> Iterator[None]:
    command = ["deployments.gateway", "--port", side.gateway.rpartition(":")[2]]
    command += ["--upstream", side.api]
    environment = _clean(AXR_HOME=str(side.folder / "home"), PREFECT_API_AUTH_STRING=AUTH)
    with _running(side.folder / "gateway.log", command, environment):
        _wait("the gateway", _answers(side.gateway), side.folder)
        yield


@contextmanager
def _pod(side: Side, run: str) -> Iterator[None]:
    """What boot.sh starts on a rented pod, with nothing but the gateway's address and a token."""
    token = side.token(run)
    environment = _clean(
        PREFECT_HOME=str(side.folder / "pod"),
        PREFECT_API_URL=f"{side.gateway}/api",
        PREFECT_CLIENT_CUSTOM_HEADERS=json.dumps({"Authorization": f"Bearer {token}"}),
        PREFECT_WORKER_QUERY_SECONDS="1",
        PYTHONPATH=f"{side.folder}:{REPOSITORY}",
    )
    command = ["prefect", "worker", "start", "--pool", "pods", "--work-queue", f"axr-{run}"]
    command += ["--name", f"pod-{run}", "--type", "process", "--limit", "1"]
    with _running(side.folder / "pod.log", command, environment):
        yield


def _parent(side: Side) -> dict[str, str]:
    """A task run of a parent that is not on the pod's queue, as run_deployment makes one."""
    parent = side.call("POST", "flow_runs/", {"flow_id": str(side.flow)})["id"]
    task = {"flow_run_id": parent, "task_key": "child", "dynamic_key": str(uuid4())}
    return {"parent_task_run_id": side.call("POST", "task_runs/", task)["id"]}


def test_a_pod_works_through_the_gateway_and_hears_a_cancel_after_an_outage(side: Side) -> None:
    """Task, logs, artifacts and events arrive; a cancel that was set while the gateway was away
    arrives by polling.
    """
    run = str(uuid4())
    work = side.start("work", run, parameters={"run": run}, **_parent(side))
    wait = side.start("wait", run)
    with ExitStack() as gateway:
        gateway.enter_context(_gateway(side))
        with _pod(side, run):
            _wait("the end of work", lambda: side.state(work) == "Completed", side.folder)
            logs = {"logs": {"flow_run_id": {"any_": [work]}}}
            words = {"said in a task", "said in the flow"}
            _wait(
                "the logs",
                lambda: words <= {log["message"] for log in side.call("POST", "logs/filter", logs)},
                side.folder,
            )
            artifact = side.call("GET", f"artifacts/progress-{run}/latest")
            assert (artifact["data"], artifact["flow_run_id"]) == (100.0, work)

            def task_run_is_recorded() -> bool:
                asked = {"task_runs": {"flow_run_id": {"any_": [work]}}}
                found = side.call("POST", "task_runs/filter", asked)
                return [one["state"]["name"] for one in found] == ["Completed"]

            _wait("the task run", task_run_is_recorded, side.folder)
            _wait("its event", lambda: side.events(id=[f"axolotl.run.{run}"]), side.folder)
            workers = side.call("POST", "work_pools/pods/workers/filter", {})
            assert [(one["name"], one["status"]) for one in workers] == [(f"pod-{run}", "ONLINE")]

            _wait("wait to run", lambda: side.state(wait) == "Running", side.folder)
            gateway.close()
            cancelling = {"state": {"type": "CANCELLING"}, "force": True}
            side.call("POST", f"flow_runs/{wait}/set_state", cancelling)
            time.sleep(2)  # the socket has broken, and nothing could say so
            assert side.state(wait) == "Cancelling"
            gateway.enter_context(_gateway(side))
            _wait("the cancel", lambda: side.state(wait) == "Cancelled", side.folder, within=30)
            _wait(
                "the worker's own event",
                lambda: side.events(id=[f"prefect.worker.process.pod-{run}"]),
                side.folder,
            )
    refused = [line for line in (side.folder / "gateway.log").open() if " refused " in line]
    assert refused == []
    dropped = [line for line in (side.folder / "gateway.log").open() if "dropped" in line]
    assert dropped == []


@pytest.fixture(scope="module")
def served(side: Side) -> Iterator[Side]:
    """A gateway for the tests that need no worker."""
    with _gateway(side):
        yield side


def test_the_real_client_reaches_its_own_run_only(served: Side) -> None:
    """With the settings of a pod, and every other door is a 403."""
    run, other = str(uuid4()), str(uuid4())
    mine, others = (UUID(served.start("wait", of)) for of in (run, other))
    headers = {"Authorization": f"Bearer {served.token(run)}"}
    settings = {
        PREFECT_API_URL: f"{served.gateway}/api",
        PREFECT_CLIENT_CUSTOM_HEADERS: headers,
        PREFECT_CLIENT_MAX_RETRIES: 0,
    }
    with temporary_settings(settings), get_client(sync_client=True) as client:
        assert client.read_flow_run(mine).id == mine
        assert client.read_deployment(UUID(served.deployments["wait"])).name == "pod"
        assert [found.id for found in client.read_flow_runs()] == [mine]
        client.update_flow_run_labels(mine, {"axr.facts": "{}"})
        doors: list[Callable[[], object]] = [
            lambda: client.read_flow_run(others),
            lambda: client.set_flow_run_state(others, Completed(), force=True),
            lambda: client.update_flow_run(mine, job_variables={"command": "x"}),
            lambda: client.update_flow_run_labels(others, {"axr.facts": "{}"}),
            lambda: client.read_deployment(UUID(served.deployments["work"])),
            lambda: client.create_flow_run_from_deployment(UUID(served.deployments["wait"])),
            lambda: client.read_work_pools(),
            lambda: client.read_block_documents(),
            lambda: client.read_variables(),
            lambda: client.read_automations(),
        ]
        for forbidden in doors:
            with pytest.raises(PrefectHTTPStatusError) as refused:
                forbidden()
            assert refused.value.response.status_code == 403
    assert served.state(str(others)) == "Scheduled"


@pytest.mark.parametrize(
    "path", ["/api/..%2f..%2fapi/automations/", "/api/flow_runs/../variables/", "/api/%66lows/"]
)
def test_a_path_with_tricks_is_refused_on_the_wire(served: Side, path: str) -> None:
    """As the real server hands it to the gateway."""
    line = http.client.HTTPConnection(urlsplit(served.gateway).netloc, timeout=10)
    line.putrequest("GET", path)
    line.putheader("Authorization", f"Bearer {served.token(str(uuid4()))}")
    line.endheaders()
    assert line.getresponse().status == 403
    line.close()


def _event(name: str, resource: str, **payload: Any) -> dict[str, Any]:
    return {
        "id": str(uuid4()),
        "occurred": datetime.now(UTC).isoformat(),
        "event": name,
        "resource": {"prefect.resource.id": resource},
        "related": [],
        "payload": payload,
    }


def test_events_of_others_go_neither_in_nor_out(served: Side) -> None:
    """Two runs, one line each way: only the own ones pass."""
    run, other = str(uuid4()), str(uuid4())
    mine, others = (f"prefect.flow-run.{served.start('wait', of)}" for of in (run, other))

    async def talk() -> set[tuple[str, str]]:
        header = {"Authorization": f"Bearer {served.token(run)}"}
        prefect = [Subprotocol("prefect")]

        async def opened(path: str) -> Any:
            line = await connect(
                f"{served.socket}/{path}", subprotocols=prefect, additional_headers=header
            )
            await line.send(json.dumps({"type": "auth", "token": None}))
            assert json.loads(await line.recv()) == {"type": "auth_success"}
            return line

        hearing, telling = await opened("events/out"), await opened("events/in")
        # Without an end the server takes the moment of the question for it.
        now = datetime.now(UTC)
        wanted = {
            "event": {"prefix": ["prefect.flow-run.t"]},
            "occurred": {"since": now.isoformat(), "until": (now + timedelta(days=1)).isoformat()},
        }
        await hearing.send(json.dumps({"type": "filter", "filter": wanted, "backfill": False}))

        async def heard() -> tuple[str, str]:
            event = json.loads(await hearing.recv())["event"]
            return event["event"], event["resource"]["prefect.resource.id"]

        async def post(*events: dict[str, Any]) -> None:
            await asyncio.to_thread(served.call, "POST", "events", list(events))

        async def until_the_server_listens() -> None:
            while True:
                await post(_event("prefect.flow-run.tick", mine))
                with suppress(TimeoutError):
                    assert await asyncio.wait_for(heard(), 0.2) == ("prefect.flow-run.tick", mine)
                    return

        async with asyncio.timeout(20):
            await until_the_server_listens()
            await telling.send(json.dumps(_event("prefect.flow-run.told", others)))
            await telling.send(json.dumps(_event("axolotl.config.pushed", "github.repository.x/x")))
            await telling.send(json.dumps(_event("prefect.flow-run.told", mine)))
            await post(
                _event("prefect.flow-run.theirs", others), _event("prefect.flow-run.to", mine)
            )
            found: set[tuple[str, str]] = set()
            while len(found - {("prefect.flow-run.tick", mine)}) < 2:
                found.add(await heard())
        await telling.close()
        await hearing.close()
        return found - {("prefect.flow-run.tick", mine)}

    assert asyncio.run(talk()) == {("prefect.flow-run.to", mine), ("prefect.flow-run.told", mine)}
    _wait(
        "the told event",
        lambda: "prefect.flow-run.told" in {one["event"] for one in served.events(id=[mine])},
        served.folder,
    )
    assert "prefect.flow-run.told" not in {one["event"] for one in served.events(id=[others])}
    assert served.events(id=["github.repository.x/x"]) == []


def test_a_socket_without_a_token_or_for_another_worker_does_not_open(served: Side) -> None:
    """401 on the upgrade; a hello of another queue closes the line."""

    async def without_token() -> None:
        async with connect(f"{served.socket}/events/in", subprotocols=[Subprotocol("prefect")]):
            pass

    with pytest.raises(InvalidStatus) as refused:
        asyncio.run(without_token())
    assert refused.value.response.status_code == 401

    async def of_another() -> tuple[int | None, str | None]:
        header = {"Authorization": f"Bearer {served.token(str(uuid4()))}"}
        url = f"{served.socket}/work_pools/pods/workers/connect"
        async with connect(
            url, subprotocols=[Subprotocol("prefect")], additional_headers=header
        ) as line:
            await line.send(json.dumps({"type": "auth", "token": None}))
            assert json.loads(await line.recv()) == {"type": "auth_success"}
            payload = {"worker_name": "pod-x", "work_queue_names": ["axr-x"]}
            await line.send(json.dumps({"type": "worker.hello.v1", "payload": payload}))
            await line.wait_closed()
            return line.close_code, line.close_reason

    assert asyncio.run(of_another()) == (1008, "authorization_failed")


def test_a_push_arrives_as_an_event(served: Side) -> None:
    """By a token that opens nothing else."""
    token = push_token(served.key, "me/pushed", time.time() + 60)
    payload = {
        "ref": "refs/heads/main",
        "before": "0" * 40,
        "after": "ab" * 20,
        "files": [{"path": "a.yml", "blob": "cd" * 20}],
    }
    body = {
        "event": "axolotl.config.pushed",
        "resource": {"prefect.resource.id": "github.repository.me/pushed"},
        "payload": payload,
    }
    headers = {"Authorization": f"Bearer {token}"}
    answer = httpx.post(f"{served.gateway}/push", json=body, headers=headers, timeout=10)
    assert answer.status_code == 201, answer.text
    _wait("it", lambda: served.events(id=["github.repository.me/pushed"]), served.folder)
    (event,) = served.events(id=["github.repository.me/pushed"])
    assert event["payload"] == {**payload, "repository": "me/pushed"}
    assert httpx.get(f"{served.gateway}/api/health", headers=headers).status_code == 403


def test_the_bundle_of_a_run_comes_as_an_archive(served: Side) -> None:
    """Of the code as it lies here, since this run names no commit."""
    run = served.call("POST", "flow_runs/", {"flow_id": str(served.flow)})["id"]
    headers = {"Authorization": f"Bearer {served.token(run)}"}
    answer = httpx.get(f"{served.gateway}/bundle/{run}", headers=headers, timeout=30)
    assert answer.status_code == 200
    assert answer.content[:2] == b"\x1f\x8b"
    assert httpx.get(f"{served.gateway}/bundle/{run}", timeout=10).status_code == 401
