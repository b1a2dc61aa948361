"""The Prefect API as the gateway reaches it, with the API's own credentials where it has some."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException
from websockets.typing import Subprotocol

# What the pod's client says that the server must hear; all else stays here.
HEADERS_UP = {
    "accept",
    "user-agent",
    "x-prefect-api-version",
    "prefect-csrf-token",
    "prefect-csrf-client",
}
HEADERS_DOWN = {"content-type", "retry-after"}
ANSWER_WITHIN = 60.0
CONNECT_WITHIN = 5.0
# The frames of the server: a backfill of events, snapshots of the pool.
LARGEST_FRAME = 16 * 1024 * 1024


class Away(Exception):
    """The Prefect API does not answer, or not to us; nothing is decided."""


@dataclass(frozen=True)
class Answer:
    """What goes back to the pod."""

    status: int
    headers: dict[str, str]
    content: bytes

    def json(self) -> Any:
        """The parsed content."""
        return json.loads(self.content)


class Upstream:
    """The Prefect API at `url` (with /api); `auth_string` is user:password or None."""

    def __init__(
        self,
        url: str,
        *,
        auth_string: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._url = url.rstrip("/")
        self._auth_string = auth_string
        self._client = httpx.AsyncClient(
            headers=self._authorization(),
            timeout=httpx.Timeout(ANSWER_WITHIN, connect=CONNECT_WITHIN),
            limits=httpx.Limits(max_connections=100, max_keepalive_connections=20),
            transport=transport,
            trust_env=False,
            follow_redirects=False,
        )

    async def send(
        self, method: str, path: str, *, query: str = "", body: Any = None, headers: Any = ()
    ) -> Answer:
        """One request; `headers` are the pod's, of which the harmless ones go along."""
        passed = {k: v for k, v in dict(headers).items() if k.lower() in HEADERS_UP}
        content = None if body is None else json.dumps(body, allow_nan=False).encode()
        if content is not None:
            passed["content-type"] = "application/json"
        try:
            response = await self._client.request(
                method,
                f"{self._url}{path}{'?' if query else ''}{query}",
                content=content,
                headers=passed,
            )
        except httpx.HTTPError as error:
            raise Away(f"the Prefect API is away: {type(error).__name__}") from error
        if response.status_code == 401:
            raise Away("the Prefect API refuses the gateway's own credentials")
        kept = {k: v for k, v in response.headers.items() if k in HEADERS_DOWN}
        return Answer(response.status_code, kept, response.content)

    async def read(self, path: str) -> Mapping[str, Any] | None:
        """The object at this path; None when there is none."""
        answer = await self.send("GET", path)
        if answer.status in (404, 422):
            return None
        return _object(answer)

    async def find_flow_runs(self, question: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The flow runs that fit a filter."""
        answer = await self.send("POST", "/flow_runs/filter", body=dict(question))
        if answer.status != 200:
            raise Away(f"the Prefect API answered {answer.status}")
        found: list[Mapping[str, Any]] = answer.json()
        return found

    @asynccontextmanager
    async def socket(self, path: str) -> AsyncIterator[ClientConnection]:
        """A socket of the API, past its authentication; Away when it can't be had."""
        try:
            async with asyncio.timeout(CONNECT_WITHIN):
                made = await self._connect(path)
        except (OSError, TimeoutError, WebSocketException, ValueError) as error:
            raise Away(f"the Prefect API is away: {type(error).__name__}") from error
        try:
            yield made
        finally:
            await made.close()

    async def _connect(self, path: str) -> ClientConnection:
        made = await connect(
            self._url.replace("http", "ws", 1) + path,
            subprotocols=[Subprotocol("prefect")],
            additional_headers=self._authorization(),
            max_size=LARGEST_FRAME,
            proxy=None,
        )
        try:
            await made.send(json.dumps({"type": "auth", "token": self._auth_string}))
            if json.loads(await made.recv()).get("type") == "auth_success":
                return made
        except BaseException:
            await made.close()
            raise
        await made.close()
        raise Away("the Prefect API refuses the gateway's own credentials")

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    def _authorization(self) -> dict[str, str]:
        if self._auth_string is None:
            return {}
        return {"Authorization": f"Basic {base64.b64encode(self._auth_string.encode()).decode()}"}


def _object(answer: Answer) -> Mapping[str, Any]:
    found = answer.json() if answer.status == 200 else None
    if not isinstance(found, dict):
        raise Away(f"the Prefect API answered {answer.status}")
    return found
