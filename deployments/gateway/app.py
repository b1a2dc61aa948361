"""The gateway as one ASGI application.

/health        no token needed; says nothing of what lies behind
/api/…         the Prefect API, with a pod's token: see rules, frames and ownership
/bundle/<run>  the code for the pod of this run, with its token
/logs/…        PUT: a log of this run's pod, with its token: see logs_door
/push          a push event, with a pusher's token
/github        GitHub's webhook, signed with the secret of AXR_WEBHOOK_SECRET; 404 without one

Answers of its own: 401 without a token that holds, 403 {"detail": reason} for what is not allowed,
400 for a body that is no JSON, 413 for one that is too large, 502 while the Prefect API is away.
Neither tokens nor bodies are ever logged.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from deployments.gateway import sockets
from deployments.gateway.bundle import NoBundle, make_bundle
from deployments.gateway.events_door import push_event
from deployments.gateway.logs_door import keep_log
from deployments.gateway.ownership import Ownership
from deployments.gateway.rules import Refused, is_plain, judge, the_lease
from deployments.gateway.upstream import Answer, Away, Upstream
from deployments.gateway.webhook_door import KIND, LARGEST, SECRET, SIGNATURE, is_signed, pushed
from runner.home import home
from runner.push.git import GitError
from runner.push.tree import TooLarge
from runner.sources import COPIES, pushed_items
from runner.tokens import Token, read_token

LARGEST_BODY = 2 * 1024 * 1024
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
API = "/api"

log = logging.getLogger("gateway")


class Ended(Exception):
    """Ends a request with this answer."""

    def __init__(self, answer: Response) -> None:
        super().__init__(answer.status_code)
        self.answer = answer


@dataclass
class Gateway:
    """The handlers and what they share."""

    upstream: Upstream
    key: bytes
    repository: Path
    bundles: Path
    copies: Path
    runs: Path
    clock: Callable[[], float] = time.time
    webhook_secret: str | None = field(default=None, repr=False)
    ownership: Ownership = field(init=False)
    _bundling: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.ownership = Ownership(self.upstream)

    async def api(self, request: Request) -> Response:
        """Pass a pod's request on to the Prefect API."""
        token = self._token(request)
        path = self._plain_path(request, token)
        body = await _body(request)
        query = request.scope["query_string"].decode("latin-1")
        verdict = judge(token, request.method, path, query, body)
        if isinstance(verdict, Refused):
            raise self._refuse(request, token, verdict.reason)
        for thing in verdict.own:
            if not await self.ownership.owns(token, thing):
                reason = f"not this run's {thing.kind.replace('_', ' ')}"
                raise self._refuse(request, token, reason)
        answer = await self.upstream.send(
            request.method, path, query=query, body=verdict.body, headers=request.headers
        )
        if answer.status < 300 and verdict.answer == "own runs only":
            mine = [run for run in answer.json() if self.ownership.is_of(token, run)]
            return JSONResponse(mine, answer.status)
        if answer.status < 300 and verdict.answer == "the lease":
            return JSONResponse(the_lease(answer.json()), answer.status)
        if answer.status < 300 and verdict.answer == "a new artifact":
            self.ownership.remember_artifact(answer.json())
        return _response(answer)

    async def bundle(self, request: Request) -> Response:
        """The code for the pod of this run."""
        token = self._token(request)
        self._plain_path(request, token)
        if token.kind != "pod" or request.path_params["run"] != token.run:
            raise self._refuse(request, token, "not this run's bundle")
        run = await self.upstream.read(f"/flow_runs/{token.run}")
        if run is None:
            raise Ended(JSONResponse({"detail": "there is no such run"}, 404))
        pushed_from = (run.get("parameters") or {}).get
        try:
            async with self._bundling:
                archive = await asyncio.to_thread(
                    self._bundle, pushed_from("repository"), pushed_from("commit")
                )
        except (NoBundle, TooLarge, GitError) as no:
            log.error("no bundle for run %s: %s", token.run, no)
            raise Ended(JSONResponse({"detail": str(no)}, 500)) from no
        return FileResponse(archive, media_type="application/gzip")

    async def log(self, request: Request) -> Response:
        """Keep a log of the pod of this run."""
        token = self._token(request)
        path = self._plain_path(request, token).removeprefix("/logs/")
        body = await _body(request)
        if refused := await asyncio.to_thread(keep_log, self.runs, token, path, body):
            raise self._refuse(request, token, refused.reason)
        return JSONResponse({"kept": True})

    async def push(self, request: Request) -> Response:
        """Take a push event from outside."""
        token = self._token(request)
        event = push_event(token, await _body(request), self.clock())
        if isinstance(event, Refused):
            raise self._refuse(request, token, event.reason)
        await self._send(event)
        return JSONResponse({"id": event["id"]}, 201)

    async def github(self, request: Request) -> Response:
        """Take a delivery of GitHub's webhook."""
        if not self.webhook_secret:
            return JSONResponse({"detail": f"no {SECRET} is set here"}, 404)
        body = await _content(request, LARGEST)
        delivery = ascii(request.headers.get("x-github-delivery", ""))[:80]
        if not is_signed(self.webhook_secret, body, request.headers.get(SIGNATURE)):
            log.warning("refused a delivery of GitHub %s: its signature is not ours", delivery)
            return JSONResponse({"detail": "not signed with our secret"}, 401)
        event = pushed(request.headers.get(KIND), body)
        if isinstance(event, Refused):
            log.warning("refused a delivery of GitHub %s: %s", delivery, event.reason)
            return JSONResponse({"detail": event.reason}, 400)
        if event is None:
            return JSONResponse({"detail": "nothing to do"})
        await self._send(event)
        return JSONResponse({"id": event["id"]}, 201)

    async def socket(self, pod: WebSocket) -> None:
        """Pass a pod's socket on to the Prefect API; refused before it is accepted."""
        try:
            token = self._token(pod)
            path = self._plain_path(pod, token)
            found = sockets.line(token, path, self.ownership) if token.kind == "pod" else None
            if found is None or "prefect" not in pod.scope["subprotocols"]:
                raise self._refuse(pod, token, "not open to pods")
        except Ended as ended:
            await pod.send_denial_response(ended.answer)
            return
        await sockets.serve(pod, token, path, found, self.upstream, now=self.clock())

    def _bundle(self, repository: object, commit: object) -> Path:
        source = pushed_items(self.copies, str(repository), str(commit)) if commit else []
        return make_bundle(self.repository, source, self.bundles)

    async def _send(self, event: dict[str, Any]) -> None:
        answer = await self.upstream.send("POST", "/events", body=[event])
        if answer.status >= 300:
            raise Away(f"the Prefect API answered {answer.status} to an event")

    def _token(self, asked: HTTPConnection) -> Token:
        scheme, _, text = asked.headers.get("authorization", "").partition(" ")
        found = read_token(self.key, text.strip(), self.clock())
        if scheme.lower() != "bearer" or found is None:
            answer = JSONResponse({"detail": "a token is needed that holds"}, 401)
            answer.headers["WWW-Authenticate"] = "Bearer"
            raise Ended(answer)
        return found

    def _plain_path(self, asked: HTTPConnection, token: Token) -> str:
        """The path after /api as it was sent, which is the only one that is ever judged."""
        raw: bytes = asked.scope.get("raw_path") or asked.scope["path"].encode()
        if not is_plain(raw):
            raise self._refuse(asked, token, "a path of plain signs only")
        return raw.decode("ascii").removeprefix(API)

    def _refuse(self, asked: HTTPConnection, token: Token, reason: str) -> Ended:
        method, path = asked.scope.get("method", "socket"), asked.scope["path"][:200]
        log.warning("refused %s %s: %r %r: %s", token.kind, token.subject, method, path, reason)
        return Ended(JSONResponse({"detail": reason}, 403))


def make_app(
    upstream: str,
    key: bytes,
    *,
    repository: Path,
    bundles: Path | None = None,
    auth_string: str | None = None,
    webhook_secret: str | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
    clock: Callable[[], float] = time.time,
) -> Starlette:
    """The gateway in front of the Prefect API at `upstream` (with /api).

    Args:
        upstream: the API's address.
        key: signs the tokens.
        repository: the runner's own code, for bundles.
        bundles: the folder in which they are kept, <AXR_HOME>/bundles without one.
        auth_string: user:password of the API, None where it asks for none.
        webhook_secret: what GitHub signs its deliveries with, None where it sends none.
        transport: instead of the network.
        clock: unix s.
    """
    reached = Upstream(upstream, auth_string=auth_string, transport=transport)
    folder = bundles or home().path / "bundles"
    gateway = Gateway(
        reached,
        key,
        repository,
        folder,
        folder.parent / COPIES,
        folder.parent / "runs",
        clock,
        webhook_secret,
    )

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await reached.close()

    app = Starlette(
        lifespan=lifespan,
        routes=[
            Route("/health", _health),
            Route("/bundle/{run}", gateway.bundle, methods=["GET"]),
            Route("/logs/{rest:path}", gateway.log, methods=["PUT"]),
            Route("/push", gateway.push, methods=["POST"]),
            Route("/github", gateway.github, methods=["POST"]),
            Route(f"{API}/{{rest:path}}", gateway.api, methods=METHODS),
            WebSocketRoute(f"{API}/{{rest:path}}", gateway.socket),
        ],
    )
    app.router.redirect_slashes = False
    app.add_exception_handler(Ended, _ended)
    app.add_exception_handler(Away, _away)
    return app


async def _health(request: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _ended(request: Request, error: Exception) -> Response:
    assert isinstance(error, Ended)
    return error.answer


async def _away(request: Request, error: Exception) -> Response:
    log.warning("%s", error)
    return JSONResponse({"detail": str(error)}, 502)


async def _content(request: Request, largest: int) -> bytes:
    """The body as it was sent, read no further than the limit."""
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > largest:
            log.warning("refused %s: more than %s bytes", request.scope["path"][:200], largest)
            raise Ended(JSONResponse({"detail": f"at most {largest} bytes"}, 413))
    return bytes(content)


async def _body(request: Request) -> Any:
    """The parsed body, None for an empty one."""
    content = await _content(request, LARGEST_BODY)
    try:
        return json.loads(content, parse_constant=_no) if content else None
    except (ValueError, RecursionError):
        raise Ended(JSONResponse({"detail": "the body is no JSON"}, 400)) from None


def _no(constant: str) -> None:
    raise ValueError(constant)


def _response(answer: Answer) -> Response:
    return Response(answer.content, answer.status, answer.headers)
