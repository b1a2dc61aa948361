"""Whether processes do anything that can be seen from outside: compute, read or write.

A model that is downloaded or written takes time without a step, and one that is stuck takes the
same time: bytes and CPU seconds tell them apart. Looked at once a minute and averaged, since
trackers wake up every few seconds for ever.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

MEASURE_EVERY = 60.0  # seconds
CPU_SHARE = 0.05  # of one core; a tracker that samples the machine takes 0.01 to 0.03
BYTES_A_SECOND = 50_000.0
PAGE = 4096


class Counters(NamedTuple):
    """What a process has done since it began: seconds on a CPU, bytes read and written."""

    cpu: float
    bytes: float


class Work:
    """Tells whether the processes that `processes` gives were at work in the last minute."""

    def __init__(
        self,
        processes: Callable[[], Iterable[int]],
        *,
        count: Callable[[int], Counters | None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._processes = processes
        self._count = count or counters
        self._clock = clock
        self._measured_at = clock()
        self._before: dict[int, Counters] | None = None
        self._busy = True

    def busy(self) -> bool:
        """True when they were at work, or when it can't be told (yet)."""
        now = self._clock()
        passed = now - self._measured_at
        if self._before is not None and passed < MEASURE_EVERY:
            return self._busy
        seen = {pid: found for pid in self._processes() if (found := self._count(pid))}
        if self._before is not None:
            self._busy = not seen or _at_work(self._before, seen, passed)
        self._before, self._measured_at = seen, now
        return self._busy


def counters(pid: int) -> Counters | None:
    """Return what a process has done so far, None when it is gone or not ours to look into."""
    try:
        # Behind the name, which may hold blanks: state is the first field.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return None
    moved = dict(line.split(": ") for line in lines)
    # A mapped file (safetensors) is read by page faults, which no byte counter sees.
    faults = int(fields[9]) * PAGE
    return Counters(
        cpu=(int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
        bytes=faults + sum(int(moved[name]) for name in ("rchar", "wchar")),
    )


def _at_work(before: dict[int, Counters], now: dict[int, Counters], seconds: float) -> bool:
    nothing = Counters(0.0, 0.0)
    cpu = sum(done.cpu - before.get(pid, nothing).cpu for pid, done in now.items())
    moved = sum(done.bytes - before.get(pid, nothing).bytes for pid, done in now.items())
    return cpu > CPU_SHARE * seconds or moved > BYTES_A_SECOND * seconds
