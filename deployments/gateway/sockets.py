"""Passes frames between a pod's socket and the API's, and looks at each by `frames`.

The pod's first frame, its answer to Prefect's own authentication, ends here: the header of the
upgrade has said who it is. What happens when the API goes away is chosen by what each client of
Prefect takes as a reason to come back.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from deployments.gateway import frames
from deployments.gateway.ownership import Ownership
from deployments.gateway.rules import Allowed, NotAllowed, Refused
from deployments.gateway.upstream import Away, Upstream
from runner.tokens import POOL, Token

log = logging.getLogger("gateway")

GOING_AWAY, REFUSED, FAILED = 1001, 1008, 1011
# Codes that stand for "no code" and may not be sent.
UNSENDABLE = {1004, 1005, 1006, 1015}
# A client of events/in gives up after 11 refusals, and its events are lost: let it wait in here.
PATIENCE = 8.0

Look = Callable[[Any], Awaitable[Any]]


@dataclass(frozen=True)
class Line:
    """One of the three sockets: `up` and `down` give the frame to pass on, or None to drop it."""

    up: Look
    down: Look
    away: tuple[int, str]
    patience: float = 0.0


def line(token: Token, path: str, ownership: Ownership) -> Line | None:
    """The line of this path (after /api); None for a path that is not open to pods."""

    async def pass_on(frame: Any) -> Any:
        return frame

    async def tell(event: Any) -> Any:
        verdict = frames.judge_event(token, event)
        if isinstance(verdict, Refused):
            log.info("run %s: dropped an event: %s", token.run, verdict.reason)
            return None
        for thing in verdict.own:
            if not await ownership.owns(token, thing):
                log.info("run %s: dropped an event of another's %s", token.run, thing.kind)
                return None
        return verdict.body

    async def hear(frame: Any) -> Any:
        about = frames.told_of(frame)
        for thing in about:
            if not await ownership.owns(token, thing):
                return None
        return frame if about else None

    async def ask(frame: Any) -> Any:
        if not frames.is_filter(frame):
            raise NotAllowed("only a filter")
        return frame

    hello_said = False

    async def work(frame: Any) -> Any:
        nonlocal hello_said
        verdict: Allowed | Refused
        judging = frames.judge_worker_frame if hello_said else frames.judge_hello
        verdict, hello_said = judging(token, frame), True
        if isinstance(verdict, Refused):
            raise NotAllowed(verdict.reason)
        return verdict.body

    if path == "/events/in":
        return Line(tell, pass_on, (GOING_AWAY, ""), PATIENCE)
    if path == "/events/out":
        return Line(ask, hear, (FAILED, ""))
    if path == f"/work_pools/{POOL}/workers/connect":
        return Line(work, pass_on, (FAILED, "transient_server_error"))
    return None


async def serve(
    pod: WebSocket, token: Token, path: str, found: Line, upstream: Upstream, *, now: float
) -> None:
    """Accept the pod's socket and pass frames until one side or the token ends."""
    await pod.accept(subprotocol="prefect")
    try:
        async with asyncio.timeout(token.expires - now), AsyncExitStack() as stack:
            first = await _receive(pod)
            if not isinstance(first, Mapping) or first.get("type") != "auth":
                raise NotAllowed("expected an auth frame")
            server = await _connect(stack, upstream, path, found.patience)
            await pod.send_text(json.dumps({"type": "auth_success"}))
            await _pass_frames(pod, server, found)
            await _close(pod, *_ending(server, found))
    except WebSocketDisconnect:
        return
    except TimeoutError:
        await _close(pod, REFUSED, "the token has ended")
    except NotAllowed as no:
        log.info("run %s: closed %s: %s", token.run, path, no)
        await _close(pod, REFUSED, "authorization_failed")
    except Away as away:
        log.warning("closed %s: %s", path, away)
        await _close(pod, *found.away)


async def _connect(
    stack: AsyncExitStack, upstream: Upstream, path: str, patience: float
) -> ClientConnection:
    loop = asyncio.get_running_loop()
    until = loop.time() + patience
    while True:
        try:
            return await stack.enter_async_context(upstream.socket(path))
        except Away:
            if loop.time() >= until:
                raise
        await asyncio.sleep(0.5)


async def _pass_frames(pod: WebSocket, server: ClientConnection, found: Line) -> None:
    """Both ways at once, until the server ends; the errors of either way are raised."""
    ways = [
        asyncio.create_task(_up(pod, server, found.up)),
        asyncio.create_task(_down(pod, server, found.down)),
    ]
    try:
        done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
    for way in done:
        way.result()


async def _up(pod: WebSocket, server: ClientConnection, look: Look) -> None:
    while True:
        passed = await look(await _receive(pod))
        if passed is None:
            continue
        try:
            await server.send(json.dumps(passed, allow_nan=False))
        except ConnectionClosed:
            return


async def _down(pod: WebSocket, server: ClientConnection, look: Look) -> None:
    try:
        async for text in server:
            if await look(json.loads(text)) is not None:
                await pod.send_text(text if isinstance(text, str) else text.decode())
    except ConnectionClosed:
        return


async def _receive(pod: WebSocket) -> Any:
    """The next frame, parsed; NotAllowed when it is no JSON."""
    message = await pod.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", GOING_AWAY))
    try:
        return json.loads(message.get("text") or message.get("bytes") or "", parse_constant=_no)
    except (ValueError, RecursionError):
        raise NotAllowed("a frame that is no JSON") from None


def _ending(server: ClientConnection, found: Line) -> tuple[int, str]:
    """How to close the pod's socket after the server closed its own."""
    code = server.close_code
    if found.patience or code is None or code in UNSENDABLE:
        return found.away
    return code, server.close_reason or ""


async def _close(pod: WebSocket, code: int, reason: str) -> None:
    if pod.client_state is not WebSocketState.DISCONNECTED:
        try:
            await pod.close(code, reason)
        except (RuntimeError, WebSocketDisconnect):
            return  # the pod was quicker


def _no(constant: str) -> None:
    raise ValueError(constant)
