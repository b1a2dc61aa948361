"""How a socket ends when it can't go on: so that each client of Prefect comes back."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from starlette.testclient import TestClient, WebSocketDenialResponse
from starlette.websockets import WebSocketDisconnect
from websockets.sync.server import ServerConnection, serve
from websockets.typing import Subprotocol

from deployments.gateway import sockets
from deployments.gateway.app import make_app
from runner.tokens import pod_token

KEY = b"k" * 32
RUN = str(uuid4())
NOW = 1_800_000_000.5
AUTH = {"type": "auth", "token": None}
CHANNEL = "/api/work_pools/pods/workers/connect"


def _client(port: int, tmp_path: Path) -> TestClient:
    api = f"http://127.0.0.1:{port}/api"
    options: Any = {"repository": tmp_path, "bundles": tmp_path, "clock": lambda: NOW}
    return TestClient(make_app(api, KEY, auth_string="admin:secret", **options))


@contextmanager
def _opened(client: TestClient, path: str, expires: float = NOW + 60) -> Iterator[Any]:
    headers = {"Authorization": f"Bearer {pod_token(KEY, RUN, expires)}"}
    with client.websocket_connect(path, subprotocols=["prefect"], headers=headers) as line:
        yield line


def _nobody() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def api() -> Iterator[tuple[int, list[Any]]]:
    """The API's end of a socket: notes the frames, answers `bye` by closing with 1012."""
    frames: list[Any] = []

    def talk(line: ServerConnection) -> None:
        for text in line:
            frames.append(json.loads(text))
            if frames[-1].get("type") == "auth":
                line.send(json.dumps({"type": "auth_success"}))
            elif "bye" in str(text):
                line.close(1012, "service restart")

    with serve(talk, "127.0.0.1", 0, subprotocols=[Subprotocol("prefect")]) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.socket.getsockname()[1], frames
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("path", "code", "reason"),
    [
        # Anything but a clean end makes the client of events/in give its events up.
        ("/api/events/in", 1001, ""),
        ("/api/events/out", 1011, ""),
        # Any other reason would switch the worker's channel off for good.
        (CHANNEL, 1011, "transient_server_error"),
    ],
)
def test_an_api_that_is_away_closes_the_line_so_that_the_client_comes_back(
    path: str, code: int, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The upgrade itself is accepted: a refused one counts as a mistake of the settings."""
    monkeypatch.setattr(sockets, "PATIENCE", 0.01)
    with _opened(_client(_nobody(), tmp_path), path) as line:
        line.send_json(AUTH)
        with pytest.raises(WebSocketDisconnect) as closed:
            line.receive_json()
    assert (closed.value.code, closed.value.reason) == (code, reason)


def test_the_gateway_says_its_own_credentials_and_swallows_the_pods(
    api: tuple[int, list[Any]], tmp_path: Path
) -> None:
    """What the pod's client sends as its first frame never reaches the API."""
    port, frames = api
    with _opened(_client(port, tmp_path), "/api/events/out") as line:
        line.send_json({"type": "auth", "token": "of the pod"})
        assert line.receive_json() == {"type": "auth_success"}
        line.send_json({"type": "filter", "filter": {"event": {"name": ["bye"]}}})
        with pytest.raises(WebSocketDisconnect) as closed:
            line.receive_json()
    assert closed.value.code == 1012
    assert frames[0] == {"type": "auth", "token": "admin:secret"}
    assert [frame["type"] for frame in frames] == ["auth", "filter"]


def test_a_restart_of_the_api_is_a_clean_end_for_those_who_tell_events(
    api: tuple[int, list[Any]], tmp_path: Path
) -> None:
    """They connect again and send once more what was not confirmed."""
    port, frames = api
    event = {
        "event": "axolotl.run.bye",
        "resource": {"prefect.resource.id": f"axolotl.run.{RUN}"},
    }
    with _opened(_client(port, tmp_path), "/api/events/in") as line:
        line.send_json(AUTH)
        line.receive_json()
        line.send_json({**event, "event": "axolotl.config.pushed"})
        line.send_json(event)
        with pytest.raises(WebSocketDisconnect) as closed:
            line.receive_json()
    assert closed.value.code == 1001
    assert frames[1:] == [event]


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("/api/events/out", [{"type": "filter", "filter": {}}]),
        ("/api/events/out", [AUTH, {"type": "more"}]),
        ("/api/events/in", [AUTH, "no json"]),
        (CHANNEL, [AUTH, {"type": "worker.hello.v1", "payload": {"worker_name": "pod-x"}}]),
    ],
)
def test_a_frame_out_of_line_closes_the_socket(
    api: tuple[int, list[Any]], path: str, sent: list[Any], tmp_path: Path
) -> None:
    """It never reaches the API."""
    port, frames = api
    with _opened(_client(port, tmp_path), path) as line:
        for frame in sent:
            line.send_text(frame if isinstance(frame, str) else json.dumps(frame))
        assert _closed_with(line) == 1008
    assert [frame["type"] for frame in frames] in ([], ["auth"])


def _closed_with(line: Any) -> int:
    """The code of the end, past what came before it."""
    try:
        while True:
            line.receive_json()
    except WebSocketDisconnect as closed:
        return closed.code


def test_a_line_ends_with_its_token(api: tuple[int, list[Any]], tmp_path: Path) -> None:
    """Half a second here; a socket may else live as long as its pod."""
    with _opened(_client(api[0], tmp_path), "/api/events/out", expires=NOW + 0.5) as line:
        line.send_json(AUTH)
        line.receive_json()
        with pytest.raises(WebSocketDisconnect) as closed:
            line.receive_json()
    assert (closed.value.code, closed.value.reason) == (1008, "the token has ended")


def test_a_client_without_prefects_protocol_is_refused(tmp_path: Path) -> None:
    """Without it the server would take the first frame for something else."""
    headers = {"Authorization": f"Bearer {pod_token(KEY, RUN, NOW + 60)}"}
    opening = _client(_nobody(), tmp_path).websocket_connect("/api/events/in", headers=headers)
    with pytest.raises(WebSocketDenialResponse) as refused, opening:
        pass
    assert refused.value.status_code == 403
