"""The wire between a parent and the world: counts its calls, and spoils the n-th.

Everything that a parent says goes through one of two functions: `HTTPTransport.handle_request` of
httpx (RunPod, Prefect) and `HTTPAdapter.send` of requests (Vast). `Wire.attach` stands in both. It
can't be undone: a process that has called it is for nothing else.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
import requests
from requests.adapters import HTTPAdapter

A = TypeVar("A")

OUTAGE = 300.0  # seconds
# What happens at the n-th call.
REFUSED = "refused"  # no connection: it did not arrive
LOST = "lost"  # it was done, and the answer was lost
ERROR = "error"  # 500, nothing was done
BAD_GATEWAY = "bad-gateway"  # it was done, and the answer is 502
NO_KEY = "no-key"  # 401, nothing was done
AWAY = "away"  # from this call on nothing is reached for OUTAGE seconds
CANCELLED = "cancelled"  # the user cancels the run before it is sent: SIGTERM in the call
DIES_BEFORE = "dies-before"  # the process is killed before it is sent
DIES_AFTER = "dies-after"  # the process is killed after it was done
MODES = (REFUSED, LOST, ERROR, BAD_GATEWAY, NO_KEY, AWAY, CANCELLED, DIES_BEFORE, DIES_AFTER)


class Killed(BaseException):
    """The process that calls was killed: nothing in it may catch this and go on."""


@dataclass(frozen=True)
class Fault:
    """What happens at which call to whom: "cloud" or "api". `n` counts from 1, over all lives."""

    seam: str
    mode: str
    n: int


@dataclass
class Spoilt:
    """How a call fails in the words of a library."""

    refused: Callable[[], Exception]
    lost: Callable[[], Exception]
    answer: Callable[[int], Any]


class Wire:
    """The calls of one run's parents. `ports` says whose port is which seam."""

    def __init__(self, ports: dict[int, str], time: Callable[[], float]) -> None:
        self.ports = ports
        self.calls: Counter[str] = Counter()
        self.said: list[str] = []  # to a cloud: method and path
        self.struck = False
        self.fault: Fault | None = None
        self.cancel: Callable[[], None] = lambda: None  # as the user does
        self._time = time
        self._away_until = 0.0
        self._who = ""
        self._dead = False

    def begin(self, fault: Fault | None) -> None:
        """A new run: nothing was called yet."""
        self.calls.clear()
        self.said.clear()
        self.fault, self.struck, self._away_until = fault, False, 0.0

    @contextmanager
    def spoken_by(self, who: str) -> Iterator[None]:
        """Who calls in the block: "parent" is counted, "keeper" meets an outage, "" is the world
        itself, which reaches everything.
        """
        before, self._who = self._who, who
        try:
            yield
        finally:
            self._who = before

    @contextmanager
    def life(self) -> Iterator[None]:
        """The life of one parent: it ends with the block."""
        self._dead = False
        with self.spoken_by("parent"):
            yield
        self._dead = False

    def attach(self) -> None:
        """Stand in the way of every call of this process."""
        by_httpx, by_requests = httpx.HTTPTransport.handle_request, HTTPAdapter.send

        def handle_request(this: httpx.HTTPTransport, request: httpx.Request) -> httpx.Response:
            def send() -> httpx.Response:
                answer = by_httpx(this, request)
                answer.read()
                return answer

            spoilt = Spoilt(
                lambda: httpx.ConnectError("refused", request=request),
                lambda: httpx.ReadTimeout("lost", request=request),
                lambda status: httpx.Response(status, json={"detail": "spoilt"}, request=request),
            )
            return self.carry(
                f"{request.method} {request.url.path}", request.url.port, send, spoilt
            )

        def adapter_send(this: HTTPAdapter, request: Any, *args: Any, **given: Any) -> Any:
            spoilt = Spoilt(
                lambda: requests.ConnectionError("NewConnectionError: refused", request=request),
                lambda: requests.ReadTimeout("lost", request=request),
                lambda status: _requests_answer(status, request),
            )
            send = lambda: by_requests(this, request, *args, **given)  # noqa: E731
            address = urlsplit(request.url)
            return self.carry(f"{request.method} {address.path}", address.port, send, spoilt)

        httpx.HTTPTransport.handle_request = handle_request  # type: ignore[assignment, method-assign]
        HTTPAdapter.send = adapter_send

    def carry(self, what: str, port: int | None, send: Callable[[], A], spoilt: Spoilt) -> A:
        """Send it, unless it is to fail; `what` and `port` say what it is."""
        seam = self.ports.get(port or 0)
        if seam is None or not self._who:
            return send()
        if self._who == "parent":
            if self._dead:  # what a `finally` of the dead would still call
                raise Killed
            self.calls[seam] += 1
            if seam == "cloud":
                self.said.append(what)
            if self.fault and (self.fault.seam, self.fault.n) == (seam, self.calls[seam]):
                self.struck = True
                return self._spoil(self.fault.mode, send, spoilt)
        if self._is_away(seam):
            raise spoilt.refused()
        return send()

    def _spoil(self, mode: str, send: Callable[[], A], spoilt: Spoilt) -> A:
        if mode in (DIES_BEFORE, DIES_AFTER):
            if mode == DIES_AFTER:
                send()
            self._dead = True
            raise Killed
        if mode == CANCELLED:
            # Not before: Prefect reads its settings once, and the rig's server comes first.
            from prefect.exceptions import TerminationSignal

            with self.spoken_by(""):
                self.cancel()
            raise TerminationSignal(signal.SIGTERM)
        if mode in (LOST, BAD_GATEWAY):
            send()
        if mode == AWAY:
            self._away_until = self._time() + OUTAGE
        if mode in (REFUSED, AWAY):
            raise spoilt.refused()
        if mode == LOST:
            raise spoilt.lost()
        answer: A = spoilt.answer({ERROR: 500, BAD_GATEWAY: 502, NO_KEY: 401}[mode])
        return answer

    def _is_away(self, seam: str) -> bool:
        fault = self.fault
        return fault is not None and fault.seam == seam and self._time() < self._away_until


def _requests_answer(status: int, request: Any) -> requests.Response:
    answer = requests.Response()
    answer.status_code, answer.request, answer.url = status, request, request.url
    answer._content = b'{"detail": "spoilt"}'
    answer.headers["Content-Type"] = "application/json"
    return answer
