"""The dead-man switch: ends this pod at its deadline even if everything else is dead.

Started by boot.sh before anything else; standard library only.
Not covered yet: budget and lease.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from pod.ending import end_this_pod, say

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


def main() -> None:
    """Guard the pod named in the environment."""
    watch(float(os.environ["AXR_DEADLINE"]), _end)


def _end() -> None:
    say("the deadline is reached")
    end_this_pod()


if __name__ == "__main__":
    main()
