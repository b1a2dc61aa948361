"""What tests of any emulator need: a client, patience with processes, a moment to stop time at."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

# 2026-11-30 12:00:00 UTC, the beginning of a billing hour.
NOON = 1796040000.0


def plain_client(**options: Any) -> httpx.Client:
    """A client that does not read the certificates of the world, which takes longer than a test."""
    return httpx.Client(verify=False, timeout=10, **options)


def until(true: Callable[[], object], patience: float = 5.0) -> None:
    """Wait for a process to come so far; real time, since processes have no other."""
    end = time.monotonic() + patience
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether this process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
