"""A pod of an emulated cloud, in real time, whose container is a real guard and nothing else."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from blocks.cloud import PodOrder
from blocks.runpod.client import RunPodClient
from blocks.runpod.cloud import RunPodCloud
from blocks.vast.client import VastClient
from blocks.vast.cloud import VastCloud
from pod.marks import Marks
from pod.rundir import RunDir
from runner.home import REPOSITORY
from tests.emulators import runpod, vast
from tests.emulators.testing import until

CLOUDS = ("runpod", "vast")
A5000 = {"runpod": "NVIDIA RTX A5000", "vast": "RTX A5000"}
RUN = "run-1"
TOKEN = "token-of-the-run"

# As boot.sh starts it, but for the patience: tests have little of it.
GUARD = """
export AXR_POD="${RUNPOD_POD_ID:-$CONTAINER_ID}"
cd "$AXR_REPOSITORY"
exec "$AXR_PYTHON" -c '
from pod import ending, guard
ending.AGAIN_AFTER, guard.PROVE_AGAIN_AFTER, guard.RESCUE_AGAIN_AFTER = 0.2, 0.2, 0.5
guard.main()
'
"""


class ControlSide:
    """Answers one question, the labels of the run; None: it is away."""

    def __init__(self) -> None:
        self.labels: dict[str, Any] | None = {}
        self.renewing = False
        self.asked: list[tuple[str, str]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        """PREFECT_API_URL of the pod."""
        return f"http://127.0.0.1:{self._server.server_port}/api"

    def answer(self) -> dict[str, Any] | None:
        """The run's own flow run, as the gateway gives it."""
        if self.labels is None:
            return None
        lease = {"axr.lease": time.time()} if self.renewing else {}
        return {"id": RUN, "state_type": "RUNNING", "labels": {**lease, **self.labels}}

    def close(self) -> None:
        """No more answers."""
        self._server.shutdown()
        self._server.server_close()


@dataclass
class Guarded:
    """One rented pod with a guard, and what is around it."""

    emulator: Any
    control: ControlSide
    volume: Path
    environment: dict[str, str]
    cloud: Any = field(repr=False)

    @property
    def pods(self) -> list[dict[str, Any]]:
        """The living ones."""
        return list(self.emulator.state["pods"])

    @property
    def gone(self) -> bool:
        """Whether the pod has ended itself, with its own key."""
        state = self.emulator.state
        return not state["pods"] and all(p["reason"] == str(p["id"]) for p in state["ended"])

    @property
    def run_dir(self) -> RunDir:
        return RunDir(self.volume / RUN)

    @property
    def marks(self) -> Marks:
        (pod,) = [*self.emulator.state["pods"], *self.emulator.state["ended"]]
        return Marks(self.volume / f"guard-{pod['id']}")

    def mark(self, name: str) -> dict[str, Any]:
        """What the guard has left, empty if nothing."""
        return self.marks.read(name) or {}

    def rent(self, **environment: str) -> None:
        """The pod, with its guard running."""
        order = PodOrder(
            RUN,
            {**self.environment, **environment},
            datetime.now(UTC) + timedelta(hours=1),
            gpus=(A5000[self.environment["AXR_CLOUD"]],),
            start_script=GUARD,
            disk_gb=20,
            volume_gb=20,
            hours=1.0,
        )
        self.cloud.create(order)
        until(lambda: self.mark("access"), 20.0)

    def kill_guard(self) -> None:
        """SIGKILL for the container's main process: the guard."""
        os.kill(self.pods[0]["pid"], signal.SIGKILL)


@contextmanager
def guarded(name: str, folder: Path, **switches: Any) -> Iterator[Guarded]:
    """A cloud with nothing on it yet, and a control side that answers without renewing."""
    control = ControlSide()
    kind = {"runpod": runpod.Emulator, "vast": vast.Emulator}[name]
    with kind(images={}, home=folder / "cloud") as emulator:
        emulator.set(**({"gaps": False} if name == "vast" else {}), **switches)
        cloud = (
            RunPodCloud(RunPodClient(emulator.key, emulator.url))
            if name == "runpod"
            else VastCloud(VastClient(emulator.key, emulator.url))
        )
        volume = folder / "volume"
        (volume / RUN).mkdir(parents=True)
        environment = {
            "AXR_CLOUD": name,
            "AXR_RUN": RUN,
            "AXR_VOLUME": str(volume),
            "AXR_DEADLINE": str(int(time.time()) + 3600),
            "AXR_REPOSITORY": str(REPOSITORY),
            "AXR_PYTHON": sys.executable,
            "PYTHONPATH": str(REPOSITORY),
            "AXR_LEASE": "1.5",
            "PREFECT_API_URL": control.url,
            "AXR_TOKEN": TOKEN,
        }
        try:
            yield Guarded(emulator, control, volume, environment, cloud)
            assert emulator.state["violations"] == []
        finally:
            control.close()


def _handler(side: ControlSide) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            side.asked.append((self.path, self.headers.get("Authorization", "")))
            answer = side.answer()
            content = json.dumps(answer or {"detail": "away"}).encode()
            self.send_response(502 if answer is None else 200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Tests are silent."""

    return Handler
