"""HTTP in front of the account: keys, switches, the contract, the record of what was asked."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.emulators.runpod import graphql, rest
from tests.emulators.runpod.calls import EVENTS, PROBLEM, Answer, Call
from tests.emulators.runpod.problems import Dropped, Problem

if TYPE_CHECKING:
    from tests.emulators.runpod.emulator import Emulator

_LIMITS = {
    "RateLimit": '"minute";r=175;t=30, "hour";r=7190;t=1800',
    "RateLimit-Policy": '"minute";q=176;w=60, "hour";q=7193;w=3600',
}
_OWN = re.compile(r"/v2/pods/([^/]+)")


class Server(ThreadingHTTPServer):
    """The socket of one emulator."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, emulator: Emulator) -> None:
        self.emulator = emulator
        super().__init__(("127.0.0.1", port), _Handler)


def answer(emulator: Emulator, call: Call) -> Answer:
    """The answer to a call, held against the contract; may raise Dropped."""
    agent = call.headers.get("user-agent", "")
    if emulator.faults["cloudflare"] and agent.startswith("Python-urllib"):
        # Of the edge in front of the API, so not in the API's contract.
        return Answer(403, "error code: 1010", "text/plain")
    try:
        found = _answer(emulator, call)
    except Dropped:
        raise
    except Problem as problem:
        if problem.rule:
            emulator.violation("rule", call, problem.errors or [problem.detail])
        found = _problem_answer(problem)
    except Exception as error:  # a bug of ours must not look like a fault that a test asked for
        emulator.violation("emulator", call, [repr(error)])
        found = _problem_answer(Problem(500, f"a bug of the emulator: {error!r}"))
    errors = emulator.contract.response_errors(
        call.method, call.path, found.status, found.media, found.body
    )
    if errors:
        emulator.violation("response", call, errors)
        return _problem_answer(Problem(500, "a bug of the emulator", errors))
    return found


def _answer(emulator: Emulator, call: Call) -> Answer:
    faults = emulator.faults
    for name in ("status", *_named(call)):
        if fault := faults.take_status(name, call.method, call.path):
            time.sleep(fault.hang)
            if fault.status:
                raise Problem(fault.status, fault.detail, retry_after=fault.retry_after)
    call = _signed(emulator, call)
    if call.path == "/graphql":
        if gone := faults["graphql_410"]:
            body = {"message": "gone"} if gone == "json" else "Gone"
            return Answer(410, body, "application/json" if gone == "json" else "text/plain")
        return graphql.answer(emulator.account, call)
    _check_rights(emulator, call)
    media = call.headers.get("content-type", "")
    errors = emulator.contract.request_errors(call.method, call.path, call.query, media, call.raw)
    if errors:
        emulator.violation("request", call, errors)
        raise Problem(422, "the request is not valid", errors)
    return rest.route(emulator.account, call)


def _named(call: Call) -> list[str]:
    """The switches of their own that this call has."""
    if (call.method, call.path) == ("GET", "/v2/pods"):
        return ["list_status"]
    ends = call.method == "DELETE" and _OWN.fullmatch(call.path)
    if ends or (isinstance(call.body, dict) and call.body.get("action") == "terminate"):
        return ["delete_status"]
    return []


def _signed(emulator: Emulator, call: Call) -> Call:
    """The call with its caller; Problem 401. A catalog of GraphQL needs no key."""
    scheme, _, key = call.headers.get("authorization", "").partition(" ")
    if call.path == "/graphql" and not key:
        key = call.query.get("api_key", "")
        if not key:
            return call
    elif scheme != "Bearer" or not key:
        raise Problem(401, "missing bearer token")
    caller = emulator.account.owner_of(key)
    if caller is None:
        raise Problem(401, "invalid API key")
    return Call(call.method, call.path, call.query, call.headers, call.raw, call.body, caller)


def _check_rights(emulator: Emulator, call: Call) -> None:
    """Problem 403 for a key of too little scope; a pod's key may see and delete its own pod."""
    scope = emulator.faults["key_scope_403"]
    if call.caller == "account":
        what = f"{call.method} {call.path}"
        if scope is True or (isinstance(scope, list) and any(re.search(p, what) for p in scope)):
            raise Problem(403, "access denied")
        return
    own = _OWN.fullmatch(call.path)
    may = own is not None and own[1] == call.caller and call.method in ("GET", "DELETE")
    if not may or not emulator.faults["scoped_key_v2"]:
        raise Problem(403, "access denied")


def _problem_answer(problem: Problem) -> Answer:
    headers = {}
    if problem.retry_after is not None:
        headers["Retry-After"] = f"{problem.retry_after:g}"
    return Answer(problem.status, problem.body, PROBLEM, headers=headers)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def serve(self) -> None:
        emulator = self.server.emulator
        if emulator.closed:  # a connection that was kept open
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
                self._send(emulator.control(call))
                return
            emulator.account.advance()
            with emulator.recorded(call) as record:
                try:
                    found = answer(emulator, call)
                except Dropped as dropped:
                    record["status"] = None
                    self._drop(dropped.hold)
                    return
                record["status"] = found.status
            self._send(found)

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = serve

    def _send(self, found: Answer) -> None:
        self.send_response(found.status)
        for name, value in {**_LIMITS, **found.headers}.items():
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
