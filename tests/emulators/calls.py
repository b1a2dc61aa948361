"""A call and its answer, apart from HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

JSON = "application/json"
PROBLEM = "application/problem+json"
EVENTS = "text/event-stream"


@dataclass(frozen=True)
class Call:
    """One request. `caller` is "account", the id of a pod with its own key, or None."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    raw: bytes
    body: Any = None
    caller: str | None = None


@dataclass(frozen=True)
class Answer:
    """What goes back: parsed JSON, a text, or a stream of texts; `media` None for no body."""

    status: int
    body: Any = None
    media: str | None = JSON
    stream: Iterator[str] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


class Dropped(Exception):
    """The connection ends without an answer, `hold` seconds from now."""

    def __init__(self, hold: float) -> None:
        super().__init__("the connection is dropped")
        self.hold = hold
