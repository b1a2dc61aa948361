"""Processes remembered in a file: a pid alone may have been given to somebody else since."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """A process by pid and start time (clock ticks since boot, field 22 of /proc/PID/stat)."""

    pid: int
    start: int

    @classmethod
    def of(cls, pid: int) -> Process:
        """The living process of this pid; ProcessLookupError when there is none."""
        start = _start(pid)
        if start is None:
            raise ProcessLookupError(pid)
        return cls(pid, start)

    def alive(self) -> bool:
        """True while this very process lives; a zombie is dead."""
        return _start(self.pid) == self.start

    def end(self, *, grace: float) -> None:
        """SIGTERM, and SIGKILL after `grace` seconds; returns when it is gone."""
        deadline = time.monotonic() + grace
        self._signal(signal.SIGTERM)
        while self.alive():
            if time.monotonic() > deadline:
                self._signal(signal.SIGKILL)
            time.sleep(0.05)

    def _signal(self, number: signal.Signals) -> None:
        if self.alive():
            os.kill(self.pid, number)


def _start(pid: int) -> int | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])
