import subprocess
import sys
import time
from pathlib import Path

import pytest

from runner.locks import LockHeld, hold, holder, is_free

HOLD = """
import sys, time
from pathlib import Path
from runner.locks import hold
with hold(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def _holding(lock: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(lock)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_lock_is_held_as_long_as_its_process_lives(tmp_path: Path) -> None:
    """SIGKILL frees it at once: life and death need no heartbeat."""
    lock = tmp_path / "run.lock"
    process = _holding(lock)
    assert not is_free(lock)
    assert holder(lock) == process.pid
    with pytest.raises(LockHeld), hold(lock):
        pass
    process.kill()
    process.communicate()
    assert is_free(lock)


def test_a_subprocess_does_not_keep_the_lock_of_its_dead_parent(tmp_path: Path) -> None:
    """A trainer outlives its follower; the follower must count as dead nevertheless."""
    lock = tmp_path / "run.lock"
    with hold(lock):
        child = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(60)"], close_fds=False
        )
    try:
        deadline = time.monotonic() + 10  # exec closes the descriptor a moment after Popen returns
        while not is_free(lock) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert is_free(lock)
    finally:
        child.kill()
        child.wait()


def test_a_lock_nobody_ever_held_is_free(tmp_path: Path) -> None:
    """No file is made by asking."""
    assert is_free(tmp_path / "none.lock")
    assert not (tmp_path / "none.lock").exists()
