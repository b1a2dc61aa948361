"""The dead-man switch: ends this pod at its deadline even if everything else is dead.

Started by boot.sh before anything else; standard library only.
Not covered yet: budget, lease, and rented clouds.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

LOOK_EVERY = 5.0


def watch(
    deadline: float,
    end: Callable[[], None],
    *,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait for `deadline` (Unix seconds), then call `end`.

    Short sleeps, so that a stepped clock is noticed.
    """
    while clock() < deadline:
        sleep(min(LOOK_EVERY, max(0.0, deadline - clock())))
    end()


def end_local_pod(pod: str) -> None:
    """SIGKILL every other process that carries the pod's mark."""
    for pid in _marked(pod):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    print(f"guard: the pod {pod} reached its deadline and was ended", flush=True)


def _marked(pod: str) -> Iterator[int]:
    wanted = f"AXR_POD={pod}".encode()
    for entry in Path("/proc").iterdir():
        try:
            carries = entry.name.isdigit() and wanted in (entry / "environ").read_bytes().split(
                b"\0"
            )
        except OSError:  # gone meanwhile, or another user's
            continue
        if carries and int(entry.name) != os.getpid():
            yield int(entry.name)


def main() -> None:
    """Guard the pod named in the environment."""
    watch(float(os.environ["AXR_DEADLINE"]), lambda: end_local_pod(os.environ["AXR_POD"]))


if __name__ == "__main__":
    main()
