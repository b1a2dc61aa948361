"""What goes wrong on purpose; the words are in the docstring of the package."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, fields
from typing import Any

from tests.emulators.hub.problems import Refused


@dataclass
class Fault:
    """One thing that goes wrong `times` times."""

    match: str = ""
    times: int = 1
    status: int = 0
    retry_after: int | None = None
    ratelimit: bool = False
    message: str = "emulated fault"
    hang: float = 0.0
    lost: bool = False
    drop_after: int | None = None
    slow: int | None = None
    cut_after: int | None = None
    stall_after: int | None = None
    stall: float = 5.0
    corrupt: int | None = None
    short: int = 0

    @property
    def spoils(self) -> bool:
        """Whether it acts somewhere within an answer's body."""
        return not (self.cut_after is self.stall_after is self.corrupt is None)

    def refusal(self) -> Refused:
        """The answer instead of the right one."""
        headers = {}
        if self.retry_after is not None:
            headers["Retry-After"] = str(self.retry_after)
            if self.ratelimit:
                headers["RateLimit"] = f'"api";r=0;t={self.retry_after}'
                headers["RateLimit-Policy"] = '"fixed window";"api";q=1000;w=300'
        return Refused(self.status, self.message, headers=headers)


NONE = Fault(times=0)


class Faults:
    """The faults that are switched on; each is used up by acting."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._lock = threading.Lock()

    def set(self, faults: list[dict[str, Any]]) -> None:
        """Replace them all; raises Refused for a word that is not known."""
        known = {field.name for field in fields(Fault)}
        for fault in faults:
            if strange := sorted(set(fault) - known):
                raise Refused(400, f"unknown words in a fault: {', '.join(strange)}")
        with self._lock:
            self._faults = [Fault(**fault) for fault in faults]

    def take(self, method: str, path: str) -> Fault:
        """The fault for this request, NONE mostly."""
        with self._lock:
            for fault in self._faults:
                if fault.times > 0 and re.search(fault.match, f"{method} {path}"):
                    fault.times -= 1
                    return fault
        return NONE
