"""One request over HTTP: its body and answer, with what a fault does to them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import parse_qs, unquote, urlsplit

from tests.emulators.hub.faults import NONE, Fault
from tests.emulators.hub.problems import Dropped, Refused

BLOCK = 64 * 1024
SENT_AT_ONCE = 1024 * 1024


class Wire(BaseHTTPRequestHandler):
    """What the hub's and the storage's handlers share; `route` is theirs."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # it costs 40 ms an answer
    fault: Fault = NONE
    status = 0
    rate: float | None = None  # bytes a second of file contents on this connection
    _free_at = 0.0  # when what was sent so far has taken its time

    def route(self, method: str, path: str) -> None:
        """Answer the request."""
        raise NotImplementedError

    def take_fault(self, method: str, path: str) -> Fault:
        """What goes wrong with this request."""
        raise NotImplementedError

    def note(self, method: str, path: str, status: int) -> None:
        """Remember that it was there; status 0 when nobody was answered."""
        raise NotImplementedError

    def handle_any(self) -> None:
        """Any method."""
        path = urlsplit(self.path).path
        method, self.status, self._read = self.command, 0, 0
        self.fault = self.take_fault(method, path)
        try:
            if self.fault.hang:
                time.sleep(self.fault.hang)
            if self.fault.status:
                raise self.fault.refusal()
            self.route(method, path)
        except Refused as refusal:
            self._refuse(refusal)
        except (Dropped, OSError):  # the client is gone, or this emulator ends
            self.close_connection = True
            self.status = 0
        self.note(method, path, self.status)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = handle_any

    @property
    def query(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.path).query)

    @property
    def words(self) -> list[str]:
        """The parts of the path, decoded: an encoded slash does not part them."""
        return [unquote(word) for word in urlsplit(self.path).path.strip("/").split("/")]

    @property
    def announced(self) -> int | None:
        """The size of the body, None for one in chunks."""
        length = self.headers.get("Content-Length")
        return None if length is None else int(length)

    def blocks(self) -> Iterator[bytes]:
        """The body, as slow as the fault wants; ends the connection where it says so."""
        size = self.announced or 0
        while self._read < size:
            drop = self.fault.drop_after
            if drop is not None and self._read >= drop:
                raise Dropped
            most = min(BLOCK, size - self._read)
            if drop is not None:
                most = min(most, max(1, drop - self._read))
            if self.fault.slow:
                most = min(most, max(1, self.fault.slow // 20))
                time.sleep(most / self.fault.slow)
            block = self.rfile.read(most)
            if not block:
                raise Dropped
            self._read += len(block)
            yield block

    def body(self) -> bytes:
        """All of it; raises Refused for a body without a length."""
        if self.announced is None and self.headers.get("Transfer-Encoding"):
            raise Refused(411, "Length Required")
        return b"".join(self.blocks())

    def json_body(self) -> dict[str, Any]:
        """The object in it."""
        try:
            value = json.loads(self.body() or b"{}")
        except ValueError as error:
            raise Refused(400, f"no JSON: {error}") from error
        if not isinstance(value, dict):
            raise Refused(400, "no JSON object")
        return value

    def answer(
        self, value: Any, *, status: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        """Answer with JSON."""
        content = json.dumps(value).encode()
        self.start(status, len(content), {"Content-Type": "application/json", **(headers or {})})
        self.send(content)

    def start(self, status: int, size: int, headers: dict[str, str]) -> None:
        """The head of an answer; nobody gets it when the fault is `lost`."""
        if self.fault.lost:
            raise Dropped
        self.status = status
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(size))
        self.end_headers()

    def send(self, content: bytes) -> None:
        """A piece of the answer's body."""
        if self.command == "HEAD":
            return
        cut = self.fault.cut_after if self.fault.cut_after is not None else self.fault.stall_after
        if cut is not None and cut <= len(content):
            self.wfile.write(content[:cut])
            self.wfile.flush()
            if self.fault.stall_after is not None:
                time.sleep(self.fault.stall)
            raise Dropped
        if self.fault.corrupt is not None and 0 <= self.fault.corrupt < len(content):
            at = self.fault.corrupt
            content = content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]
        self._shorten(len(content))
        self.wfile.write(content)

    def send_file(self, file: BinaryIO | Path, size: int, headers: dict[str, str]) -> None:
        """Answer with a file's content, or the range of it that was asked for."""
        first, last = self._range(size)
        status = 200 if (first, last) == (0, size - 1) and "Range" not in self.headers else 206
        last -= min(self.fault.short, last - first + 1)
        if status == 206:
            headers = {**headers, "Content-Range": f"bytes {first}-{last}/{size}"}
        self.start(status, last - first + 1, {**headers, "Accept-Ranges": "bytes"})
        if self.command == "HEAD":
            return
        with file.open("rb") if isinstance(file, Path) else file as reader:
            if isinstance(file, Path) and not self.fault.spoils:
                self._send_range(reader.fileno(), first, last + 1)
                return
            reader.seek(first)
            left = last - first + 1
            while left:
                block = reader.read(min(BLOCK, left))
                left -= len(block)
                self._pace(len(block))
                self.send(block)

    def _send_range(self, file: int, start: int, end: int) -> None:
        """Without a copy through Python, so that the client is what is measured."""
        most = max(BLOCK, int((self.rate or 20 * SENT_AT_ONCE) / 20))
        while start < end:
            self._pace(min(most, end - start))
            sent = os.sendfile(self.connection.fileno(), file, start, min(most, end - start))
            if not sent:
                raise Dropped
            start += sent

    def _pace(self, size: int) -> None:
        """Wait until this connection may send so many bytes more."""
        if not self.rate:
            return
        now = time.monotonic()
        self._free_at = max(self._free_at, now - 0.05) + size / self.rate
        if self._free_at > now:
            time.sleep(self._free_at - now)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: what happened is in /_state."""

    def _range(self, size: int) -> tuple[int, int]:
        asked = self.headers.get("Range")
        if asked is None:
            return 0, size - 1
        unit, _, span = asked.partition("=")
        first, _, last = span.partition("-")
        if unit != "bytes" or not first.isdigit() or int(first) >= size:
            raise Refused(
                416, "Range Not Satisfiable", headers={"Content-Range": f"bytes */{size}"}
            )
        return int(first), min(int(last), size - 1) if last else size - 1

    def _shorten(self, sent: int) -> None:
        fault = self.fault
        if not fault.spoils:
            return
        self.fault = replace(
            fault,
            cut_after=None if fault.cut_after is None else fault.cut_after - sent,
            stall_after=None if fault.stall_after is None else fault.stall_after - sent,
            corrupt=None if fault.corrupt is None else fault.corrupt - sent,
        )

    def _refuse(self, refusal: Refused) -> None:
        try:
            left = (self.announced or 0) - self._read
            self.fault = NONE
            if 0 < left <= 1024 * 1024:
                self.body()  # the connection can be used again
            elif left:
                self.close_connection = True
                refusal.headers["Connection"] = "close"
            self.answer(refusal.body, status=refusal.status, headers=refusal.headers)
        except (Dropped, ConnectionError):
            self.close_connection = True
