import signal
import subprocess
import sys

from deployments.processes import Process

STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(1, flush=True)
time.sleep(60)
"""


def test_a_process_is_alive_until_it_ends_and_a_zombie_is_dead() -> None:
    """Waiting for a zombie would wait for ever."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    process = Process.of(child.pid)
    assert process.alive()
    child.send_signal(signal.SIGKILL)
    while process.alive():
        pass
    child.wait()


def test_a_pid_that_was_given_to_somebody_else_is_not_the_process() -> None:
    """Nothing that is not ours is ever signalled."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    other = Process(child.pid, Process.of(child.pid).start - 1)
    assert not other.alive()
    other.end(grace=0)
    assert child.poll() is None
    child.kill()
    child.wait()


def test_a_process_that_ignores_the_request_is_killed() -> None:
    """Ending never hangs."""
    child = subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    Process.of(child.pid).end(grace=0.05)
    assert child.wait() == -signal.SIGKILL
