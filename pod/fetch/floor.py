"""Whether a transfer is fast enough: what comes over a window of time must not fall below a floor.

A process that lives proves nothing: transfers freeze with the process alive (xet-core issues 800,
869, 883). What counts is work that is done: bytes that came, bytes that were checked.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

WINDOW = 60.0  # seconds
TELLS = 1.0
# Bytes a second of the whole transfer. A machine that stays below takes more than a day for 20 GB.
LEAST = 200_000.0
LEAST_NAME, WINDOW_NAME = "AXR_FETCH_FLOOR", "AXR_FETCH_WINDOW"  # variables that set them


class Floor:
    """Hears how much is done so far, and tells when too little came for a whole window."""

    def __init__(
        self,
        least: float = LEAST,
        window: float = WINDOW,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.least, self.window = least, window
        self._clock = clock
        self._seen: deque[tuple[float, float]] = deque([(clock(), 0.0)])

    def hear(self, done: float) -> None:
        """So much is done by now, since the beginning."""
        now = self._clock()
        self._seen.append((now, done))
        # The newest of those that are a window old stays, to measure from.
        while len(self._seen) > 1 and self._seen[1][0] <= now - self.window:
            self._seen.popleft()

    def pause(self) -> None:
        """Nothing can come now, and that is known: begin anew."""
        self._seen = deque([(self._clock(), self._seen[-1][1])])

    @property
    def speed(self) -> float:
        """Bytes a second over the last window, up to now; 0 while that is too short to tell."""
        first, before = self._seen[0]
        passed = self._clock() - first
        return (self._seen[-1][1] - before) / passed if passed >= TELLS else 0.0

    @property
    def broken(self) -> bool:
        """True when a whole window has brought too little."""
        return self._clock() - self._seen[0][0] >= self.window and self.speed < self.least
