"""Life and death of a process, exactly: an flock on a file, freed by the kernel however the holder
died.

A parent, and each follower on a pod, holds the lock of its run as long as it lives. Whoever gets
the lock knows that nobody lives: no heartbeat, no pid that may have been given to another process.
Python's descriptors are not inherited over exec, so a subprocess never keeps the lock of its dead
parent.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class LockHeld(Exception):
    """Another living process holds the lock."""


@contextmanager
def hold(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock of `path` for the length of the block; raises LockHeld unless `wait`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError as error:
        os.close(descriptor)
        raise LockHeld(str(path)) from error
    try:
        os.truncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
        yield
    finally:
        os.close(descriptor)


def is_free(path: Path) -> bool:
    """True when no living process holds the lock of `path` (a missing file is free)."""
    if not path.exists():
        return True
    try:
        with hold(path):
            return True
    except LockHeld:
        return False


def holder(path: Path) -> int | None:
    """The pid that holds the lock of `path`, None when it is free."""
    if is_free(path):
        return None
    text = path.read_text().strip()
    return int(text) if text.isdigit() else None
