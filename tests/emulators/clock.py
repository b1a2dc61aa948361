"""The emulator's one clock, and times as the API writes them.

Everything that happens gets a time of whole milliseconds, and the API shows all of its digits, so
whoever adds up from `createdAt` gets the very sum that the bill holds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime


class Clock:
    """Real time, or with `stopped_at` a time that only `advance` moves. Seconds since the epoch."""

    def __init__(self, stopped_at: float | None = None) -> None:
        self._base: Callable[[], float] = time.time if stopped_at is None else lambda: stopped_at
        self._skipped = 0.0

    def now(self) -> float:
        """The present, a whole number of milliseconds."""
        return int(round((self._base() + self._skipped) * 1000, 3)) / 1000

    def advance(self, seconds: float) -> None:
        """Skip that much time; it never goes back."""
        if seconds < 0:
            raise ValueError("a clock does not go back")
        self._skipped += seconds


def write_time(seconds: float) -> str:
    """RFC 3339 in UTC with milliseconds."""
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def read_time(text: str) -> float:
    """Seconds since the epoch of an RFC 3339 text; ValueError when it is not one."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None or "T" not in text.upper():
        raise ValueError(f"{text!r} is not an RFC 3339 time")
    return moment.timestamp()
