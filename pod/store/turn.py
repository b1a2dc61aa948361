"""The store is changed by one process at a time: let the mirror finish, then take its place."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pod.rundir import RunDir, read_json
from pod.store.mirror import LOCK

MIRROR_WITHIN = 900.0  # seconds for what it has in hand
MIRROR_ENDS_WITHIN = 20.0
LOOK_EVERY = 0.2


@contextmanager
def without_mirror(
    run_dir: RunDir,
    step: int | None,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """Hold the mirror's lock: once it has stored checkpoint-`step`, has trouble or takes too long,
    it is ended.
    """
    give_up_at = clock() + MIRROR_WITHIN
    kill_at: float | None = None
    with (run_dir.path / LOCK).open("a") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                now = clock()
            if kill_at is None and (now >= give_up_at or _is_idle(run_dir, step)):
                _signal_mirror(run_dir, signal.SIGTERM)
                kill_at = now + MIRROR_ENDS_WITHIN
            elif kill_at is not None and now >= kill_at:
                _signal_mirror(run_dir, signal.SIGKILL)
                kill_at = now + MIRROR_ENDS_WITHIN
            sleep(LOOK_EVERY)
        yield


def _is_idle(run_dir: RunDir, step: int | None) -> bool:
    standing = read_json(run_dir.path / "store.json") or {}
    stored = step is None or step in standing.get("stored", [])
    return bool(standing.get("trouble")) or (stored and not standing.get("waiting"))


def _signal_mirror(run_dir: RunDir, number: signal.Signals) -> None:
    ours = [b"pod.store.mirror", str(run_dir.path).encode()]
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if all(word in words for word in ours):
                os.kill(int(entry.name), number)
        except OSError:  # gone meanwhile
            continue
