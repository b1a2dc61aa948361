"""The processes of one local pod: everything that carries `AXR_POD=<id>` in its environment.

A worker starts each flow in a session of its own and so is the trainer, so no process group holds a
pod; the mark is inherited by all of them and survives the death of any parent.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
MARK = "AXR_POD"


@dataclass(frozen=True)
class Usage:
    """CPU seconds used so far and resident bytes, over all processes of a pod."""

    processes: int
    cpu_seconds: float
    ram_bytes: int


def marked(pod: str) -> list[int]:
    """The pids of the living processes that carry the pod's mark; zombies and this process are left
    out.
    """
    wanted = f"{MARK}={pod}".encode()
    return [pid for pid in _pids() if pid != os.getpid() and _carries(pid, wanted)]


def kill_all(
    pod: str,
    *,
    timeout: float = 20.0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[int]:
    """SIGKILL the pod's processes until two scans in a row are empty; returns what is left after
    `timeout` seconds.

    Two scans, because a process that forks between reading the list and the signal leaves a child.
    """
    deadline = clock() + timeout
    empty = 0
    while empty < 2:
        left = marked(pod)
        empty = 0 if left else empty + 1
        for pid in left:
            _kill(pid)
        if left and clock() > deadline:
            return left
        sleep(0.05)
    return []


def usage(pod: str) -> Usage:
    """What the pod's processes use together."""
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    cpu, ram, count = 0.0, 0, 0
    for pid in marked(pod):
        stat = _stat(pid)
        if stat is None:
            continue
        count += 1
        cpu += (int(stat[11]) + int(stat[12])) / ticks
        ram += int(stat[21]) * page
    return Usage(count, cpu, ram)


def _pids() -> list[int]:
    return [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()]


def _carries(pid: int, wanted: bytes) -> bool:
    try:
        environment = (PROC / str(pid) / "environ").read_bytes()
    except OSError:  # gone meanwhile, or another user's
        return False
    # A zombie's environ reads as empty, so that the dead are never counted.
    return wanted in environment.split(b"\0")


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the third on (state first); the name before may hold
    blanks.
    """
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
