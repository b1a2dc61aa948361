"""The least time between two calls of a kind, per identity, and the quota of searches.

Seconds as published for each endpoint. Who calls too early is refused, and for a create call waits
all the longer.
"""

from __future__ import annotations

import re

from tests.emulators.calls import Call
from tests.emulators.clock import Clock
from tests.emulators.vast.faults import Faults
from tests.emulators.vast.problems import Refused

GAPS = {"create": 4.5, "destroy": 3.0, "get": 2.0, "list": 1.0, "change": 1.0, "bid": 5.5}
PENALTIES = {"create": 12.0}
SEARCHES, SEARCH_WINDOW = 10, 60.0

_KINDS = [
    ("PUT", re.compile(r"asks/\d+"), "create"),
    ("DELETE", re.compile(r"instances/\d+"), "destroy"),
    ("GET", re.compile(r"instances/\d+"), "get"),
    ("GET", re.compile(r"instances"), "list"),
    ("PUT", re.compile(r"instances/\d+"), "change"),
    ("PUT", re.compile(r"instances/bid_price/\d+"), "bid"),
    ("POST", re.compile(r"bundles"), "search"),
    ("PUT", re.compile(r"search/asks"), "search"),
]


def kind_of(method: str, path: str) -> str | None:
    """Which limit a call falls under; `path` without its prefix and slashes at its ends."""
    found = (kind for verb, form, kind in _KINDS if verb == method and form.fullmatch(path))
    return next(found, None)


class Limits:
    """What was asked when. Its owner serialises the calls."""

    def __init__(self, clock: Clock, faults: Faults) -> None:
        self._clock = clock
        self._faults = faults
        self._next: dict[tuple[str, str], float] = {}
        self._searches: list[float] = []

    def check(self, call: Call, path: str) -> None:
        """Count the call; Refused 429 when it comes too early."""
        kind = kind_of(call.method, path)
        gaps = self._faults["gaps"]
        if kind is None or not gaps:
            return
        now = self._clock.now()
        if kind == "search":
            self._count_search(now)
            return
        known = {**GAPS, **(gaps if isinstance(gaps, dict) else {})}
        key = (call.caller or "", kind)
        if now < self._next.get(key, 0.0) - 0.001:
            later = now + PENALTIES.get(kind, 0.0)
            self._next[key] = max(self._next[key], later)
            raise self._too_early(known[kind])
        self._next[key] = now + known[kind]

    def _count_search(self, now: float) -> None:
        self._searches = [each for each in self._searches if each > now - SEARCH_WINDOW]
        if len(self._searches) >= SEARCHES:
            raise self._too_early(SEARCH_WINDOW / SEARCHES)
        self._searches.append(now)

    def _too_early(self, gap: float) -> Refused:
        msg = f"API requests too frequent: endpoint threshold={gap:g}"
        form = self._faults["limit_form"]
        text = msg if form == "text" else None
        extra = {"detail": msg} if form == "detail" else {}
        later = self._faults["limit_retry_after"]
        return Refused(429, "rate_limit_exceeded", msg, text=text, extra=extra, retry_after=later)
