import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from pod import ending, guard


def test_the_pod_ends_at_its_deadline_and_not_before() -> None:
    """H16: no timer of a provider is trusted."""
    now = [100.0]
    ended: list[float] = []

    def sleep(seconds: float) -> None:
        assert not ended
        now[0] += seconds

    guard.watch(130.0, lambda: ended.append(now[0]), clock=lambda: now[0], sleep=sleep)
    assert ended == [130.0]


def test_a_clock_that_is_set_forward_does_not_cost_a_night() -> None:
    """The guard looks at the clock every few seconds instead of sleeping for hours."""
    times: Iterator[float] = iter([0.0, 0.0, 1e9])
    ended: list[bool] = []
    guard.watch(
        86_400.0, lambda: ended.append(True), clock=lambda: next(times), sleep=lambda _: None
    )
    assert ended == [True]


def test_ending_a_local_pod_spares_whoever_does_not_carry_its_mark() -> None:
    """Only processes of the pod die."""
    code = "import time; time.sleep(60)"
    mine, other = (
        subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "AXR_POD": pod})
        for pod in ("local-mine", "local-other")
    )
    try:
        while not _has_mark(mine.pid):
            pass
        ending.end_local_pod("local-mine")
        assert mine.wait(5) == -9
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def _has_mark(pid: int) -> bool:
    return b"AXR_POD=local-mine" in Path(f"/proc/{pid}/environ").read_bytes()
