"""An `axolotl` command that need not load axolotl: 20 s of one core, ten times a tiny training.

    python -m benchmarks.preloaded SOCKET     run by the trainer's Python: loads axolotl once, then
                                              forks a process for each command that comes in
    <environment>/bin/axolotl                 the command: hands its words, its environment and its
                                              output over and ends with the exit code

The trainer is a process of its own with what axolotl would be given; it is killed when the command
is. Not covered: launchers other than python.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from runner.home import REPOSITORY, axolotl_environment

READY_S = 300.0
LOOK_EVERY = 0.02
MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Command:
    """A command at work: who waits for its exit code."""

    pid: int
    client: socket.socket


@contextmanager
def preloaded(folder: Path, environment: dict[str, str]) -> Iterator[Path]:
    """A trainer's environment in `folder` whose `axolotl` is preloaded, for as long as it lasts.

    Raises TimeoutError when axolotl does not load.
    """
    address = folder / "s"
    command = folder / "bin" / "axolotl"
    command.parent.mkdir(parents=True, exist_ok=True)
    command.write_text(f"#!{sys.executable}\n{_CLIENT.replace('ADDRESS', repr(str(address)))}")
    command.chmod(0o755)
    address.unlink(missing_ok=True)
    server = subprocess.Popen(
        [axolotl_environment() / "bin" / "python", "-m", "benchmarks.preloaded", str(address)],
        cwd=REPOSITORY,
        env={**environment, "PYTHONPATH": str(REPOSITORY)},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + READY_S
        while not address.exists():
            if server.poll() is not None or time.monotonic() > deadline:
                raise TimeoutError("axolotl was not loaded")
            time.sleep(LOOK_EVERY)
        yield folder
    finally:
        server.communicate()  # ends its standard input


# The whole command, without imports of ours: it starts in 30 ms.
_CLIENT = """\
import json, os, socket, sys
line = json.dumps({"words": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd()})
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
    server.connect(ADDRESS)
    socket.send_fds(server, [line.encode()], [0, 1, 2])
    sys.exit(int(server.recv(64) or b"1"))
"""


def serve(address: Path) -> None:
    """Fork trainers until standard input ends, as it does when the bench dies; then end them."""
    from tests.e2e.train_server import load

    load()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(address))
    listener.listen()
    waiting = selectors.DefaultSelector()
    waiting.register(listener, selectors.EVENT_READ)
    waiting.register(sys.stdin, selectors.EVENT_READ)
    commands: list[Command] = []
    try:
        while True:
            for key, _ in waiting.select(LOOK_EVERY):
                if key.fileobj is not listener:
                    return
                commands.append(_start(listener))
            commands = [command for command in commands if _goes_on(command)]
    finally:
        for command in commands:
            os.kill(command.pid, signal.SIGKILL)


def _start(listener: socket.socket) -> Command:
    client, _ = listener.accept()
    line, files, _, _ = socket.recv_fds(client, MOST_BYTES, 3)
    pid = os.fork()
    if pid == 0:
        listener.close()
        client.close()
        for target, source in enumerate(files):
            os.dup2(source, target)
        _train(json.loads(line))
    for file in files:
        os.close(file)
    return Command(pid, client)


def _goes_on(command: Command) -> bool:
    """False once it has ended and its client knows; a command without a client is killed."""
    ended, status = os.waitpid(command.pid, os.WNOHANG)
    if ended:
        try:
            command.client.send(str(os.waitstatus_to_exitcode(status)).encode())
        except OSError:
            return False  # the client is gone
        finally:
            command.client.close()
        return False
    try:
        gone = command.client.recv(1, socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return True
    if gone:
        os.kill(command.pid, signal.SIGKILL)
    return True


def _train(order: dict[str, object]) -> None:
    """What `axolotl train FILE --launcher python [--resume-from-checkpoint DIR]` does."""
    from axolotl.cli.train import do_cli

    from tests.e2e.train_server import end_with

    words = order["words"]
    assert isinstance(words, list)
    assert words[0] == "train"
    assert words[2:4] == ["--launcher", "python"]
    resume = {"resume_from_checkpoint": words[5]} if len(words) == 6 else {}
    os.setsid()
    os.environ.clear()
    os.environ.update(order["env"])  # type: ignore[call-overload]
    os.chdir(str(order["cwd"]))
    sys.argv = ["axolotl"]
    end_with(lambda: do_cli(config=words[1], **resume))


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
