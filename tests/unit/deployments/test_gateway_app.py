"""The gateway as a whole, in front of a stub of the Prefect API."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from starlette.testclient import TestClient, WebSocketDenialResponse

from deployments.gateway.app import LARGEST_BODY, make_app
from runner.tokens import pod_token, push_token

KEY = b"k" * 32
NOW = 1_800_000_000.0
RUN, OTHER = str(uuid4()), str(uuid4())
CHILD, OTHERS_CHILD, PARENT = str(uuid4()), str(uuid4()), RUN
DEPLOYMENT, OTHERS_DEPLOYMENT = str(uuid4()), str(uuid4())
QUEUE, OTHERS_QUEUE = str(uuid4()), str(uuid4())
ARTIFACT, OTHERS_ARTIFACT = str(uuid4()), str(uuid4())
TASK_RUN, OTHERS_TASK_RUN = str(uuid4()), str(uuid4())
COMMIT = "ab" * 20
BLOB = "cd" * 20


def _flow_run(flow_run: str, pool: str, queue: str, deployment: str) -> dict[str, Any]:
    return {
        "id": flow_run,
        "work_pool_name": pool,
        "work_queue_name": queue,
        "deployment_id": deployment,
        "parameters": {"commit": COMMIT},
        "state_type": "RUNNING",
        "labels": {
            "axr.lease": 1_800_000_000,
            "axr.ends_at": "",
            "axr.spent": "0.5 0.4",
            "axr.reason": "secret",
        },
    }


FLOW_RUNS = [
    _flow_run(CHILD, "pods", f"axr-{RUN}", DEPLOYMENT),
    _flow_run(OTHERS_CHILD, "pods", f"axr-{OTHER}", OTHERS_DEPLOYMENT),
    _flow_run(PARENT, "control", "runs", OTHERS_DEPLOYMENT),
]
THINGS = {
    **{f"flow_runs/{run['id']}": run for run in FLOW_RUNS},
    f"deployments/{DEPLOYMENT}": {"id": DEPLOYMENT},
    f"work_queues/{QUEUE}": {"name": f"axr-{RUN}", "work_pool_name": "pods"},
    f"work_queues/{OTHERS_QUEUE}": {"name": f"axr-{OTHER}", "work_pool_name": "pods"},
    f"artifacts/{ARTIFACT}": {"id": ARTIFACT, "flow_run_id": CHILD, "key": None},
    f"artifacts/{OTHERS_ARTIFACT}": {"id": OTHERS_ARTIFACT, "flow_run_id": OTHERS_CHILD},
    f"task_runs/{OTHERS_TASK_RUN}": {"id": OTHERS_TASK_RUN, "flow_run_id": OTHERS_CHILD},
}


@dataclass
class Stub(httpx.AsyncBaseTransport):
    """The Prefect API: knows the things above, takes every write, notes what it was asked."""

    asked: list[httpx.Request] = field(default_factory=list)
    away: bool = False
    refuses: bool = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self.away:
            raise httpx.ConnectError("no route to 10.0.0.7")
        await request.aread()
        self.asked.append(request)
        if self.refuses:
            return httpx.Response(401, json={"exception_message": "Unauthorized"})
        path = request.url.path.removeprefix("/api/")
        if request.method == "GET" and path.startswith(("health", "work_pools", "admin")):
            return httpx.Response(200, json=True)
        if request.method == "GET":
            return httpx.Response(200 if path in THINGS else 404, json=THINGS.get(path, {}))
        body = json.loads(request.content)
        match request.method, path:
            case "POST", "flow_runs/filter":
                wanted = body.get("deployments", {}).get("id", {}).get("any_")
                # A careless server: the gateway must not rely on its own filter alone.
                found = [r for r in FLOW_RUNS if wanted is None or r["deployment_id"] in wanted]
                return httpx.Response(200, json=found)
            case "POST", "artifacts/":
                return httpx.Response(201, json={**body, "id": str(uuid4())})
            case "POST", "events":
                return httpx.Response(204)
        return httpx.Response(201, json=body, headers={"Set-Cookie": "a=b", "Retry-After": "3"})

    def paths(self) -> list[str]:
        return [f"{one.method} {one.url.path.removeprefix('/api')}" for one in self.asked]


@dataclass
class Side:
    """The gateway under test and the stub behind it."""

    stub: Stub
    app: Any

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = pod_token(KEY, RUN, NOW + 60),
        headers: dict[str, str] | None = None,
    ) -> httpx.Response:
        """One request to the gateway."""
        sent = {} if token is None else {"Authorization": f"Bearer {token}"}
        content = body if isinstance(body, bytes) else None if body is None else json.dumps(body)

        async def once() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
                return await client.request(
                    method, path, content=content, headers=sent | (headers or {})
                )

        return _run(once())


def _run(work: Coroutine[Any, Any, httpx.Response]) -> httpx.Response:
    return asyncio.run(work)


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Side]:
    """Makes a gateway; a keyword goes to make_app."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "run.py").write_text("print()")

    def made(**more: Any) -> Side:
        stub = Stub()
        app = make_app(
            "http://prefect/api",
            KEY,
            repository=tmp_path / "code",
            bundles=tmp_path / "home" / "bundles",
            transport=stub,
            clock=lambda: NOW,
            **more,
        )
        return Side(stub, app)

    return made


@pytest.fixture
def side(make: Callable[..., Side]) -> Side:
    """A gateway in front of an API without authentication."""
    return make()


@pytest.mark.parametrize(
    "token",
    [
        None,
        "",
        "nonsense",
        pod_token(b"o" * 32, RUN, NOW + 60),
        pod_token(KEY, RUN, NOW - 1),
    ],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/api/health"), ("GET", f"/bundle/{RUN}"), ("POST", "/push"), ("GET", "/api/x%2f..")],
)
def test_nothing_opens_without_a_token_that_holds(
    side: Side, method: str, path: str, token: str | None
) -> None:
    """401 says how to come back; nothing behind is asked."""
    answer = side.ask(method, path, token=token)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert side.stub.asked == []


def test_the_token_counts_in_the_header_only(side: Side) -> None:
    """A token in an address would lie in logs."""
    token = pod_token(KEY, RUN, NOW + 60)
    assert side.ask("GET", f"/api/health?token={token}", token=None).status_code == 401
    basic = {"Authorization": f"Basic {token}"}
    assert side.ask("GET", "/api/health", token=None, headers=basic).status_code == 401


def test_health_needs_no_token_and_tells_nothing(side: Side) -> None:
    """It is the gateway's own, not the API's."""
    side.stub.away = True
    assert side.ask("GET", "/health", token=None).json() == {"status": "ok"}


def test_an_own_request_reaches_the_api_without_the_pods_credentials(
    make: Callable[..., Side],
) -> None:
    """The API hears its own credentials and what the client says of itself."""
    side = make(auth_string="admin:secret")
    headers = {"X-PREFECT-API-VERSION": "0.8.4", "Cookie": "a=b", "X-Forwarded-For": "1.2.3.4"}
    answer = side.ask("GET", f"/api/flow_runs/{CHILD}", headers=headers)
    assert answer.status_code == 200
    assert answer.json()["id"] == CHILD
    sent = side.stub.asked[-1].headers
    assert sent["Authorization"] == "Basic YWRtaW46c2VjcmV0"
    assert sent["X-PREFECT-API-VERSION"] == "0.8.4"
    assert sent["Host"] == "prefect"
    assert not {"cookie", "x-forwarded-for"} & set(sent)


def test_of_the_apis_answer_only_what_clients_need_comes_back(side: Side) -> None:
    """Status, content, its type and when to come back."""
    answer = side.ask("POST", f"/api/flow_runs/{CHILD}/set_state", {"state": {"type": "RUNNING"}})
    assert answer.status_code == 201
    assert answer.headers["Retry-After"] == "3"
    assert "Set-Cookie" not in answer.headers


FOREIGN: list[tuple[str, str, Any]] = [
    ("GET", f"flow_runs/{OTHERS_CHILD}", None),
    ("GET", f"flow_runs/{uuid4()}", None),
    ("POST", f"flow_runs/{OTHERS_CHILD}/set_state", {"state": {"type": "CANCELLED"}}),
    ("POST", f"flow_runs/{PARENT}/set_state", {"state": {"type": "CANCELLED"}}),
    ("PATCH", f"flow_runs/{OTHERS_CHILD}", {"name": "x"}),
    ("PATCH", f"flow_runs/{OTHERS_CHILD}/labels", {"axr.facts": "x"}),
    ("PATCH", f"flow_runs/{PARENT}/labels", {"axr.facts": "x"}),
    ("POST", "logs/", [{"flow_run_id": OTHERS_CHILD}]),
    ("POST", "logs/", [{"flow_run_id": CHILD}, {"flow_run_id": OTHERS_CHILD}]),
    ("POST", "logs/", [{"flow_run_id": CHILD, "task_run_id": OTHERS_TASK_RUN}]),
    ("POST", "artifacts/", {"flow_run_id": OTHERS_CHILD}),
    ("POST", "artifacts/", {"flow_run_id": OTHERS_CHILD, "key": f"progress-{RUN}"}),
    ("POST", "artifacts/", {"flow_run_id": CHILD, "key": f"progress-{OTHER}"}),
    ("PATCH", f"artifacts/{OTHERS_ARTIFACT}", {"data": 1}),
    ("GET", f"deployments/{OTHERS_DEPLOYMENT}", None),
    ("GET", f"flows/{uuid4()}", None),
    ("GET", f"work_queues/{OTHERS_QUEUE}", None),
    ("POST", "work_pools/pods/get_scheduled_flow_runs", {"work_queue_names": [f"axr-{OTHER}"]}),
    ("POST", "work_pools/pods/get_scheduled_flow_runs", {}),
    ("PATCH", f"flow_runs/{CHILD}", {"job_variables": {"env": {}}}),
    ("POST", "flow_runs/", {"flow_id": str(uuid4())}),
    ("POST", f"deployments/{DEPLOYMENT}/create_flow_run", {}),
    ("POST", "block_documents/filter", {}),
    ("PATCH", "work_pools/pods", {"base_job_template": {}}),
    ("POST", "automations/", {}),
    ("POST", "variables/", {}),
    ("POST", "events", [{}]),
]


@pytest.mark.parametrize(("method", "path", "body"), FOREIGN)
def test_what_is_anothers_is_refused_and_never_reaches_the_api(
    side: Side, method: str, path: str, body: Any
) -> None:
    """403 with the reason; the API is asked whose it is and nothing else."""
    answer = side.ask(method, f"/api/{path}", body)
    assert answer.status_code == 403
    assert set(answer.json()) == {"detail"}
    looked = [one for one in side.stub.paths() if one not in (f"GET /{path}", "GET /health")]
    assert f"{method} /{path}" not in looked
    assert all(one.startswith("GET /") or one == "POST /flow_runs/filter" for one in looked)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", f"flow_runs/{CHILD}", None),
        ("GET", f"deployments/{DEPLOYMENT}", None),
        ("GET", f"work_queues/{QUEUE}", None),
        ("PATCH", f"flow_runs/{CHILD}/labels", {"axr.facts": "{}"}),
        ("POST", "logs/", [{"flow_run_id": CHILD, "task_run_id": TASK_RUN}]),
        ("PATCH", f"artifacts/{ARTIFACT}", {"data": 1}),
        ("POST", "work_pools/pods/get_scheduled_flow_runs", {"work_queue_names": [f"axr-{RUN}"]}),
    ],
)
def test_what_is_the_pods_own_is_looked_up_once(
    side: Side, method: str, path: str, body: Any
) -> None:
    """The second request costs no look-up."""
    assert side.ask(method, f"/api/{path}", body).is_success
    side.stub.asked.clear()
    assert side.ask(method, f"/api/{path}", body).is_success
    assert side.stub.paths() == [f"{method} /{path}"]


def test_a_pod_reads_of_its_run_only_until_when_it_is_paid_for(side: Side) -> None:
    """The guard's question; the task file and the other labels stay here."""
    answer = side.ask("GET", f"/api/flow_runs/{PARENT}")
    assert answer.json() == {
        "id": PARENT,
        "state_type": "RUNNING",
        "labels": {"axr.lease": 1_800_000_000, "axr.ends_at": "", "axr.spent": "0.5 0.4"},
    }
    assert side.stub.paths() == [f"GET /flow_runs/{PARENT}"]


def test_a_list_of_flow_runs_holds_own_ones_whatever_the_api_gives(side: Side) -> None:
    """The question is narrowed, and the answer is looked through too."""
    answer = side.ask("POST", "/api/flow_runs/filter", {"limit": 200})
    assert [run["id"] for run in answer.json()] == [CHILD]
    asked = json.loads(side.stub.asked[-1].content)
    assert asked["work_pool_queues"] == {"name": {"any_": [f"axr-{RUN}"]}}
    assert asked["limit"] == 200


def test_the_artifact_that_a_pod_has_made_is_its_own(side: Side) -> None:
    """Remembered from the answer, so updating it asks nothing."""
    made = side.ask("POST", "/api/artifacts/", {"key": f"progress-{RUN}", "data": 1.0})
    assert made.status_code == 201
    side.stub.asked.clear()
    path = f"artifacts/{made.json()['id']}"
    assert side.ask("PATCH", f"/api/{path}", {"data": 2.0}).is_success
    assert side.stub.paths() == [f"PATCH /{path}"]
    other = pod_token(KEY, OTHER, NOW + 60)
    assert side.ask("PATCH", f"/api/{path}", {"data": 3.0}, token=other).status_code == 403


RAW_PATHS = [
    b"/api/flow_runs/../block_documents/",
    b"/api/%66low_runs/filter",
    b"/api/flow_runs/%2E%2e/health",
    b"/api/..%2fhealth",
    b"/api/health%00",
    b"/api//health",
    b"/api/health\\",
]


@pytest.mark.parametrize("raw_path", RAW_PATHS)
def test_a_path_with_tricks_is_refused_as_it_was_sent(side: Side, raw_path: bytes) -> None:
    """Judged before anything decodes or tidies it; the client library would tidy it here."""
    from urllib.parse import unquote

    token = pod_token(KEY, RUN, NOW + 60)
    scope = {
        "type": "http",
        "method": "GET",
        "path": unquote(raw_path.decode()),
        "raw_path": raw_path,
        "query_string": b"",
        "headers": [(b"authorization", f"Bearer {token}".encode())],
    }
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(side.app(scope, receive, send))
    assert sent[0]["status"] == 403
    assert side.stub.asked == []


def test_a_body_goes_on_as_it_was_understood(side: Side) -> None:
    """Of a key that is there twice, the gateway and the API must not judge different ones."""
    body = b'{"name": "pod-%s", "name": "pod-%s"}' % (OTHER.encode(), RUN.encode())
    assert side.ask("POST", "/api/work_pools/pods/workers/heartbeat", body).is_success
    assert json.loads(side.stub.asked[-1].content) == {"name": f"pod-{RUN}"}
    assert side.stub.asked[-1].content.count(b"name") == 1


@pytest.mark.parametrize("body", [b"{", b"NaN", b"\xff", b"[" * 100_000])
def test_a_body_that_is_no_json_is_refused(side: Side, body: bytes) -> None:
    """However it is broken."""
    assert side.ask("POST", "/api/logs/", body).status_code == 400


def test_a_body_has_a_limit_that_a_batch_of_logs_stays_under(side: Side) -> None:
    """A client sends at most 1 MiB of logs at once."""
    log = {"flow_run_id": CHILD, "message": "x" * 1024}
    assert side.ask("POST", "/api/logs/", [log] * 900).is_success
    assert side.ask("POST", "/api/logs/", b" " * (LARGEST_BODY + 1)).status_code == 413


def test_an_api_that_is_away_is_said_in_one_line(side: Side) -> None:
    """502 makes Prefect's client try again; where the API lies is nobody's business."""
    side.stub.away = True
    answer = side.ask("GET", "/api/health")
    assert answer.status_code == 502
    assert answer.json() == {"detail": "the Prefect API is away: ConnectError"}


def test_credentials_that_the_api_refuses_are_not_the_pods_fault(side: Side) -> None:
    """401 would tell the pod that its token is bad."""
    side.stub.refuses = True
    assert side.ask("GET", "/api/health").status_code == 502


def test_neither_token_nor_body_is_logged(side: Side, caplog: pytest.LogCaptureFixture) -> None:
    """What was refused is, with the run and the reason."""
    caplog.set_level(logging.DEBUG)
    token = pod_token(KEY, RUN, NOW + 60)
    side.ask("POST", "/api/variables/", {"value": "hf_secret"}, token=token)
    assert f"refused pod {RUN}" in caplog.text
    assert "hf_secret" not in caplog.text
    assert token not in caplog.text


def test_a_pod_gets_its_own_bundle_only(side: Side) -> None:
    """The archive of this run's code, whoever else's is refused."""
    answer = side.ask("GET", f"/bundle/{RUN}")
    assert answer.status_code == 200
    assert answer.content[:2] == b"\x1f\x8b"
    assert side.ask("GET", f"/bundle/{OTHER}").status_code == 403
    pusher = push_token(KEY, "me/x", NOW + 60)
    assert side.ask("GET", f"/bundle/{RUN}", token=pusher).status_code == 403
    gone = str(uuid4())
    assert (
        side.ask("GET", f"/bundle/{gone}", token=pod_token(KEY, gone, NOW + 60)).status_code == 404
    )


def test_a_repository_that_is_too_large_says_so(side: Side, monkeypatch: Any) -> None:
    """The pod's log then holds the reason."""
    monkeypatch.setattr("deployments.gateway.bundle.make_bundle.__kwdefaults__", {"most_bytes": 3})
    answer = side.ask("GET", f"/bundle/{RUN}")
    assert answer.status_code == 500
    assert "run.py (7 bytes)" in answer.json()["detail"]


def _push(**more: Any) -> dict[str, Any]:
    files = [{"path": "configs/a.yml", "blob": BLOB}]
    return {
        "event": "axolotl.config.pushed",
        "resource": {"prefect.resource.id": "github.repository.me/x"},
        "payload": {"ref": "refs/heads/main", "before": COMMIT, "after": COMMIT, "files": files},
        **more,
    }


def test_a_push_becomes_one_event_of_the_tokens_repository(side: Side) -> None:
    """The repository in the payload, which dispatch reads, is the token's."""
    token = push_token(KEY, "me/x", NOW + 60)
    first = side.ask("POST", "/push", _push(), token=token)
    again = side.ask("POST", "/push", _push(), token=token)
    assert first.status_code == 201
    assert first.json() == again.json()
    (event,) = json.loads(side.stub.asked[-1].content)
    assert event["payload"]["repository"] == "me/x"
    assert event["id"] == first.json()["id"]
    assert event["occurred"].startswith("2027-01-15T08:00:00")


def _payload(**more: Any) -> dict[str, Any]:
    return _push(payload={**_push()["payload"], **more})


@pytest.mark.parametrize(
    "body",
    [
        _push(event="prefect.flow-run.Completed"),
        _push(resource={"prefect.resource.id": "github.repository.me/y"}),
        _push(resource={"prefect.resource.id": "github.repository.me/x", "more": "x"}),
        _push(related=[{"prefect.resource.id": "prefect.flow-run.x"}]),
        _push(id="x"),
        _push(occurred="yesterday"),
        _push(occurred="2026-01-01T00:00:00"),
        _push(payload=None),
        _payload(repository="me/y"),
        _payload(after="main"),
        _payload(before=3),
        _payload(before=None),
        _payload(ref=None),
        _payload(ref="main"),
        _payload(ref="refs/heads/a\nb"),
        _payload(files=[]),
        _payload(files=[{"path": "../a.yml", "blob": BLOB}]),
        _payload(files=[{"path": "/etc/a.yml", "blob": BLOB}]),
        _payload(files=[{"path": "a.sh", "blob": BLOB}]),
        _payload(files=[{"path": "a.yml", "blob": 3}]),
        _payload(files=[{"path": "a.yml", "blob": BLOB, "content": "x"}]),
        _payload(files=[{"path": "x" * 262_144 + ".yml", "blob": BLOB}]),
        _payload(files=[{"path": "a.yml", "blob": BLOB}] * 1001),
        [_push()],
        None,
    ],
)
def test_a_push_is_one_event_of_one_form(side: Side, body: Any) -> None:
    """Everything else is refused before the API hears of it."""
    answer = side.ask("POST", "/push", body, token=push_token(KEY, "me/x", NOW + 60))
    assert answer.status_code == 403
    assert side.stub.asked == []


def test_more_than_300_files_are_one_event(side: Side) -> None:
    """Of names with other letters, too; null leaves the list to dispatch."""
    token = push_token(KEY, "me/x", NOW + 60)
    files = [{"path": f"configs/día {number}.yml", "blob": BLOB} for number in range(900)]
    assert side.ask("POST", "/push", _payload(files=files), token=token).status_code == 201
    assert side.ask("POST", "/push", _payload(files=None), token=token).status_code == 201
    (event,) = json.loads(side.stub.asked[-1].content)
    assert event["payload"]["files"] is None


def test_two_branches_at_one_commit_are_two_events(side: Side) -> None:
    """One of them may be a branch that starts nothing."""
    token = push_token(KEY, "me/x", NOW + 60)
    first = side.ask("POST", "/push", _payload(ref="refs/heads/work"), token=token)
    again = side.ask("POST", "/push", _payload(), token=token)
    assert first.json() != again.json()


DELIVERY = {
    "ref": "refs/heads/main",
    "before": COMMIT,
    "after": "ef" * 20,
    "repository": {"full_name": "me/x", "private": True},
    "commits": [{"message": "x"}],
}


def _deliver(
    side: Side, body: Any = DELIVERY, *, secret: str = "s3cret", kind: str = "push", **headers: str
) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    signature = hmac.new(secret.encode(), content, "sha256").hexdigest()
    sent = {"X-GitHub-Event": kind, "X-Hub-Signature-256": f"sha256={signature}"}
    return side.ask("POST", "/github", content, token=None, headers=sent | headers)


@pytest.fixture
def hooked(make: Callable[..., Side]) -> Side:
    """A gateway that GitHub delivers to."""
    return make(webhook_secret="s3cret")


def test_a_signed_push_of_github_becomes_the_event_that_the_others_send(hooked: Side) -> None:
    """With the same id, however often it is delivered: nothing can be gained by a replay."""
    first, again = _deliver(hooked), _deliver(hooked)
    assert (first.status_code, first.json()) == (201, again.json())
    (event,) = json.loads(hooked.stub.asked[-1].content)
    assert event["event"] == "axolotl.config.pushed"
    assert event["resource"] == {"prefect.resource.id": "github.repository.me/x"}
    assert event["payload"]["files"] is None
    token = push_token(KEY, "me/x", NOW + 60)
    told = hooked.ask("POST", "/push", _payload(after="ef" * 20), token=token)
    assert told.json() == first.json()


@pytest.mark.parametrize(
    "signature", ["", "sha256=", "sha1=x", f"sha256={'0' * 64}", "sha256=\u00e9", None]
)
def test_a_forged_signature_is_refused_and_logged(
    hooked: Side, signature: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the body; neither it nor the secret is in the log."""
    headers = {"X-GitHub-Delivery": "72d3162e"} | (
        {} if signature is None else {"X-Hub-Signature-256": signature}
    )
    sent = {"X-GitHub-Event": "push"} | headers
    raw = {name: value.encode("latin-1") for name, value in sent.items()}
    answer = hooked.ask("POST", "/github", json.dumps(DELIVERY).encode(), token=None, headers=raw)  # type: ignore[arg-type]
    assert answer.status_code == 401
    assert hooked.stub.asked == []
    assert "refused a delivery of GitHub '72d3162e': its signature is not ours" in caplog.text


def test_a_delivery_signed_with_another_secret_is_refused(hooked: Side) -> None:
    """The secret is the whole key."""
    assert _deliver(hooked, secret="other").status_code == 401
    changed = json.dumps(DELIVERY).replace("me/x", "me/y").encode()
    signature = hmac.new(b"s3cret", json.dumps(DELIVERY).encode(), "sha256").hexdigest()
    sent = {"X-Hub-Signature-256": f"sha256={signature}"}
    assert _deliver(hooked, changed, **sent).status_code == 401


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"payload=%7B%7D",
        b"[" * 100_000,
        {},
        {**DELIVERY, "repository": {"full_name": "me/.."}},
        {**DELIVERY, "repository": {"full_name": 3}},
        {**DELIVERY, "after": "main"},
        {**DELIVERY, "before": None},
        {**DELIVERY, "ref": 3},
        {**DELIVERY, "ref": "refs/heads/" + "x" * 300},
    ],
)
def test_a_signed_delivery_of_another_form_is_refused(
    hooked: Side, body: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """With the reason in the log."""
    assert _deliver(hooked, body).status_code == 400
    assert hooked.stub.asked == []
    assert "refused a delivery of GitHub" in caplog.text


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("ping", {"zen": "x"}),
        ("pull_request", DELIVERY),
        ("push", {**DELIVERY, "ref": "refs/tags/v1"}),
        ("push", {**DELIVERY, "after": "0" * 40}),
    ],
)
def test_what_is_no_push_of_a_branch_is_taken_and_does_nothing(
    hooked: Side, kind: str, body: Any
) -> None:
    """GitHub shows a refusal as a failure."""
    assert _deliver(hooked, body, kind=kind).status_code == 200
    assert hooked.stub.asked == []


def test_an_oversized_delivery_is_refused_before_it_is_whole(hooked: Side) -> None:
    """GitHub sends 25 MB at most."""
    assert _deliver(hooked, b" " * (25 * 1024 * 1024 + 1)).status_code == 413


def test_without_a_secret_there_is_no_such_door(side: Side) -> None:
    """An empty secret would sign for everybody."""
    assert _deliver(side, secret="").status_code == 404


def test_a_pod_can_not_push_and_a_pusher_can_do_nothing_else(side: Side) -> None:
    """Two kinds of tokens, two doors."""
    assert side.ask("POST", "/push", _push()).status_code == 403
    pusher = push_token(KEY, "me/x", NOW + 60)
    assert side.ask("GET", "/api/health", token=pusher).status_code == 403
    assert side.ask("POST", "/api/events", [_push()], token=pusher).status_code == 403


@pytest.mark.parametrize(
    ("path", "token", "status"),
    [
        ("/api/events/in", None, 401),
        ("/api/events/out", pod_token(KEY, RUN, NOW - 1), 401),
        ("/api/work_pools/control/workers/connect", pod_token(KEY, RUN, NOW + 60), 403),
        ("/api/logs/out", pod_token(KEY, RUN, NOW + 60), 403),
        ("/api/events%2fin", pod_token(KEY, RUN, NOW + 60), 403),
        ("/api/events/in", push_token(KEY, "me/x", NOW + 60), 403),
    ],
)
def test_a_socket_is_refused_before_it_opens(
    side: Side, path: str, token: str | None, status: int
) -> None:
    """By the header of the upgrade; frames come too late."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    opening = TestClient(side.app).websocket_connect(
        path, subprotocols=["prefect"], headers=headers
    )
    with pytest.raises(WebSocketDenialResponse) as refused, opening:
        pass
    assert refused.value.status_code == status
