"""HTTP in front of an emulator: calls to it and its answers, dropped connections included."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.emulators.calls import EVENTS, Answer, Call, Dropped


class Backend(Protocol):
    """What a server needs of its emulator. `headers` are those of every answer."""

    headers: Mapping[str, str]

    @property
    def closed(self) -> bool: ...

    def control(self, call: Call) -> Answer:
        """The answer to a path that begins with /_"""

    def advance(self) -> None:
        """Let happen what is due."""

    def recorded(self, call: Call) -> contextlib.AbstractContextManager[dict[str, Any]]:
        """The call's entry in the record; its status is set on it."""

    def answer(self, call: Call) -> Answer:
        """The answer to any other call; may raise Dropped."""


class Server(ThreadingHTTPServer):
    """The socket of one emulator."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, backend: Backend) -> None:
        self.backend = backend
        super().__init__(("127.0.0.1", port), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def serve(self) -> None:
        backend = self.server.backend
        if backend.closed:  # a connection that was kept open
            self.close_connection = True
            return
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        address = urlsplit(self.path)
        body: Any = None
        with contextlib.suppress(ValueError):
            body = json.loads(raw)
        call = Call(
            self.command,
            unquote(address.path),
            dict(parse_qsl(address.query, keep_blank_values=True)),
            {name.lower(): value for name, value in self.headers.items()},
            raw,
            body,
        )
        # A client that is gone, as a pod that has ended itself, is none of our business.
        with contextlib.suppress(ConnectionError):
            if call.path.startswith("/_"):
                self._send(backend.control(call))
                return
            backend.advance()
            with backend.recorded(call) as record:
                try:
                    found = backend.answer(call)
                except Dropped as dropped:
                    record["status"] = None
                    self._drop(dropped.hold)
                    return
                record["status"] = found.status
            self._send(found)

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = serve

    def _send(self, found: Answer) -> None:
        self.send_response(found.status)
        for name, value in {**self.server.backend.headers, **found.headers}.items():
            self.send_header(name, value)
        if found.media is not None:
            self.send_header("Content-Type", found.media)
        if found.media == EVENTS:
            self._stream(found)
            return
        text = found.media == "text/plain"
        data = found.body.encode() if text else json.dumps(found.body).encode()
        if found.media is None:
            data = b""
        if found.status != 204:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, found: Answer) -> None:
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        for text in found.stream or ():
            data = text.encode()
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def _drop(self, hold: float) -> None:
        time.sleep(hold)
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: what happened is in /_state."""
