"""The start script as Vast's container runs it: packed, without our code, from the gateway."""

from __future__ import annotations

import io
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tasks.ordering import start_script
from tests.emulators.testing import until
from tests.integration.clouds.vast_rig import order, rented

BOOT = 'echo "booted $AXR_POD in $AXR_REPOSITORY, $AXR_VOLUME"; sleep 60\n'


class _Gateway(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        allowed = self.headers["Authorization"] == "Bearer token" and self.path == "/bundle/1"
        self.send_response(200 if allowed else 403)
        self.end_headers()
        if allowed:
            self.wfile.write(_bundle())

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


def _bundle() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        member = tarfile.TarInfo("pod/boot.sh")
        member.size = len(BOOT)
        archive.addfile(member, io.BytesIO(BOOT.encode()))
    return packed.getvalue()


@pytest.fixture
def gateway() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Gateway)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_pod_of_vast_fetches_our_code_and_boots(gateway: str) -> None:
    """Its id is that of the container; the volume is a folder on its disk."""
    environment = {
        "AXR_CLOUD": "vast",
        "AXR_RUN": "1",
        "AXR_VOLUME": "/workspace/data/axr",
        "AXR_GATEWAY": gateway,
        "AXR_TOKEN": "token",
    }
    with rented() as it:
        asked = order(environment=environment, start_script=start_script())
        pod = it.cloud.create(asked)
        it.emulator.advance(1)
        until(lambda: it.emulator.lines(pod.id), patience=20)
        root = Path(it.pods[0]["root"])
        said = f"booted {pod.id} in {root}/axr, {root}/workspace/data/axr"
        assert it.emulator.lines(pod.id) == [said]
