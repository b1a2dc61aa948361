"""The ends of a pod's logs on their way home."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from pod.ending import say
from pod.sending import MOST_BYTES, end_of, logs_folder, send_logs

SECRET = "hf_" + "a1B2c3D4e5" * 4


class Gateway:
    """Takes every log, or refuses with `status`."""

    def __init__(self) -> None:
        self.status = 200
        self.taken: dict[str, dict[str, Any]] = {}
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers["Authorization"] == "Bearer token":
                    gateway.taken[self.path] = json.loads(body)
                self.send_response(gateway.status)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    """A gateway that listens."""
    made = Gateway()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


@pytest.fixture
def pod(tmp_path: Path) -> dict[str, str]:
    """The environment of a local pod, with a guard's log and a trainer's."""
    environment = {
        "HOME": str(tmp_path / "home"),
        "AXR_VOLUME": str(tmp_path / "volume"),
        "AXR_RUN": "run-1",
        "AXR_POD": "pod-1",
        "HF_TOKEN": SECRET,
    }
    logs_folder(environment).mkdir(parents=True)
    (logs_folder(environment) / "worker.log").write_text(f"worker: {SECRET}\n")
    (tmp_path / "volume" / "run-1").mkdir(parents=True)
    (tmp_path / "volume" / "run-1" / "trainer.log").write_text("KeyError: 'labels'\n")
    return environment


def test_a_rented_pod_sends_its_own_logs_and_the_runs(
    pod: dict[str, str], gateway: Gateway
) -> None:
    """Without a secret, each under its name."""
    rented = {**pod, "AXR_GATEWAY": gateway.url, "AXR_TOKEN": "token"}
    assert send_logs(rented) is None
    assert gateway.taken == {
        "/logs/run-1/pod-1/worker.log": {"text": "worker: [secret HF_TOKEN]\n"},
        "/logs/run-1/pod-1/trainer.log": {"text": "KeyError: 'labels'\n"},
    }


def test_a_refusal_is_told_and_nothing_raises(pod: dict[str, str], gateway: Gateway) -> None:
    """The first one ends it: a cancelled flow has little time."""
    gateway.status = 403
    rented = {**pod, "AXR_GATEWAY": gateway.url, "AXR_TOKEN": "token"}
    assert send_logs(rented) == "worker.log is not kept: 403"
    assert len(gateway.taken) == 1
    gone = {**rented, "AXR_GATEWAY": "http://127.0.0.1:9"}
    assert send_logs(gone) == "worker.log is not kept: URLError"


def test_a_local_pod_writes_them_into_the_runs_folder(pod: dict[str, str]) -> None:
    """The trainer's log lies there already."""
    assert send_logs(pod) is None
    run = Path(pod["AXR_VOLUME"]) / "run-1"
    kept = {path.name: path.read_text() for path in (run / "logs" / "pod-1").iterdir()}
    assert kept == {"worker.log": "worker: [secret HF_TOKEN]\n"}


def test_of_a_long_log_the_end_is_sent_from_the_beginning_of_a_line(tmp_path: Path) -> None:
    """Half a line may hold half a secret."""
    path = tmp_path / "trainer.log"
    path.write_text("first line\n" + f"{SECRET}\n" * (MOST_BYTES // len(SECRET)) + "the end\n")
    text = end_of(path)
    assert len(text) <= MOST_BYTES
    assert text.startswith(f"{SECRET}\n")
    assert text.endswith("the end\n")
    assert end_of(tmp_path / "none.log") == ""


def test_what_the_guard_says_is_kept_where_boot_has_made_a_folder(
    pod: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", pod["HOME"])
    say("the pod is over: budget")
    assert (logs_folder(pod) / "guard.log").read_text().endswith(" the pod is over: budget\n")
    monkeypatch.setenv("HOME", str(tmp_path / "elsewhere"))
    say("nobody keeps this")
    assert not (tmp_path / "elsewhere").exists()
