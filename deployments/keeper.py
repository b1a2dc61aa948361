"""Keeps the control side running: the Prefect server (unless one is configured), the control
workers, the gateway where pods may be rented, and the postman that sends notices.

One process, started by `axolotl-runner up`. Whatever dies is started again, after `revive`; so a
killed worker, parent or server costs a run a few seconds. SIGTERM ends all of it and leaves pods as
they are: the next `up` finds their runs and goes on. A machine with systemd needs no keeper, see
the README.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import httpx

from deployments.control import ALREADY
from deployments.ports import own_port
from deployments.processes import Process
from runner.gateway import CLOUD_URLS, LOCAL, PUBLIC
from runner.home import REPOSITORY, Home, home
from runner.locks import LockHeld, hold
from runner.outbox import Outbox

REVIVE_EVERY = 5.0
SERVER_READY_WITHIN = 120.0
# A process that dies again at once is not started more often than this.
RESTART_AFTER = 2.0
# What waits to be told when the control side is taken down has this long; the rest is sent later.
TELL_WITHIN = 8.0
# Where one of these is set, pods of other people's machines may want to call, or GitHub.
RENTING = (PUBLIC, *CLOUD_URLS.values(), "AXR_WEBHOOK_SECRET")


@dataclass
class Kept:
    """One process that must run; `command` starts it, its output goes to logs/<name>.log."""

    name: str
    command: list[str]
    where: Home
    process: subprocess.Popen[bytes] | None = None
    started: float = field(default=float("-inf"))

    def last_words(self) -> str:
        """The end of its log."""
        text = (self.where.logs / f"{self.name}.log").read_text(errors="replace")
        return "\n".join(text.splitlines()[-10:])

    def dead(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def start(self) -> None:
        self.where.logs.mkdir(parents=True, exist_ok=True)
        with (self.where.logs / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.started = time.monotonic()

    def end(self, grace: float) -> None:
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(grace)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def keep(where: Home, *, sleep: Callable[[float], None] = time.sleep) -> None:
    """Run the control side until SIGTERM; writes control.json when it is ready for work.

    Ends with the code ALREADY when another keeper has this home.
    """
    stopping = _on_stop()
    with ExitStack() as held:
        try:
            held.enter_context(hold(where.path / "keeper.lock"))
        except LockHeld:
            raise SystemExit(ALREADY) from None
        server = None
        if "PREFECT_API_URL" not in os.environ:
            port = held.enter_context(own_port(where))
            os.environ["PREFECT_API_URL"] = f"http://127.0.0.1:{port}/api"
            server = Kept("server", _server(port), where)
        gateway = None
        if any(os.environ.get(name) for name in RENTING):
            port = held.enter_context(own_port(where, "gateway"))
            os.environ[LOCAL] = f"http://127.0.0.1:{port}"
            gateway = Kept("gateway", _gateway(port), where)
        workers = [Kept(f"worker-{queue}", _worker(queue), where) for queue in ("runs", "service")]
        _keep(server, [*([gateway] if gateway else []), *workers], where, stopping, sleep)


def _keep(
    server: Kept | None,
    others: list[Kept],
    where: Home,
    stopping: list[int],
    sleep: Callable[[float], None],
) -> None:
    kept = [server, *others] if server else others
    try:
        if server:
            server.start()
        _wait_for_api(stopping, server)
        _register_and_revive()
        for one in others:
            one.start()
        _write_control(where, kept, os.environ["PREFECT_API_URL"])
        with _sending_notices(where):
            _watch(kept, where, stopping, sleep)
            for one in reversed(others):
                one.end(grace=10.0)
    finally:
        for one in reversed(kept):
            one.end(grace=10.0)
        where.control.unlink(missing_ok=True)


@contextmanager
def _sending_notices(where: Home) -> Iterator[None]:
    """The postman goes his rounds in a thread, and once more at the end of the block."""
    from deployments.postman import postman

    sender, stop = postman(Outbox(where.outbox)), threading.Event()
    rounds = threading.Thread(target=sender.run, args=[stop], name="postman", daemon=True)
    rounds.start()
    try:
        yield
    finally:
        stop.set()
        rounds.join(TELL_WITHIN)
        if not rounds.is_alive():
            sender.close(TELL_WITHIN)


def _watch(
    kept: list[Kept], where: Home, stopping: list[int], sleep: Callable[[float], None]
) -> None:
    from deployments.revive import revive_parents

    next_revival = time.monotonic() + REVIVE_EVERY
    while not stopping:
        for one in kept:
            if one.dead() and time.monotonic() - one.started > RESTART_AFTER:
                print(f"keeper: {one.name} died, starting it again", flush=True)
                one.start()
                _write_control(where, kept, os.environ["PREFECT_API_URL"])
        if time.monotonic() > next_revival:
            next_revival = time.monotonic() + REVIVE_EVERY
            try:
                revived = revive_parents()
            except (
                httpx.HTTPError
            ) as away:  # the server is being started again; the next look will do
                print(f"keeper: can't look for dead runs now: {away}", flush=True)
            else:
                print(
                    f"keeper: revived {', '.join(revived)}\n" if revived else "", end="", flush=True
                )
        sleep(0.3)


def _register_and_revive() -> None:
    from deployments.register import register
    from deployments.revive import revive_parents

    register()
    revive_parents()


def _on_stop() -> list[int]:
    received: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        received.append(number)

    signal.signal(signal.SIGTERM, remember)
    signal.signal(signal.SIGINT, remember)
    return received


def _prefect(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "prefect", *arguments]


def _server(port: int) -> list[str]:
    host = os.environ.get("AXR_UI_HOST", "127.0.0.1")  # in a container what publishes it decides
    return _prefect("server", "start", "--host", host, "--port", str(port))


def _worker(queue: str) -> list[str]:
    return _prefect(
        "worker",
        "start",
        "--pool",
        "control",
        "--work-queue",
        queue,
        "--type",
        "process",
        "--name",
        queue,
    )


def _gateway(port: int) -> list[str]:
    host = os.environ.get("AXR_GATEWAY_HOST", "127.0.0.1")
    address = ["--host", host, "--port", str(port)]
    upstream = ["--upstream", os.environ["PREFECT_API_URL"]]
    return [sys.executable, "-m", "deployments.gateway", *address, *upstream]


def _wait_for_api(stopping: list[int], server: Kept | None) -> None:
    url = os.environ["PREFECT_API_URL"]
    deadline = time.monotonic() + SERVER_READY_WITHIN
    while not stopping:
        try:
            if httpx.get(f"{url}/health", timeout=5.0).is_success:
                return
        except httpx.HTTPError:
            pass  # not there yet; the deadline below decides
        if server and server.dead():
            raise SystemExit(f"the Prefect server ended at once:\n{server.last_words()}")
        if time.monotonic() > deadline:
            raise SystemExit(f"no Prefect API answers at {url}")
        time.sleep(0.2)


def _write_control(where: Home, kept: list[Kept], api: str) -> None:
    """Say who runs: by rename, so that a reader never sees half of it."""
    pids = {"keeper": os.getpid()} | {one.name: one.process.pid for one in kept if one.process}
    found = {
        name: Process.of(pid).start for name, pid in pids.items() if Path(f"/proc/{pid}").exists()
    }
    record = {
        "api": api,
        "processes": {name: {"pid": pids[name], "start": start} for name, start in found.items()},
    }
    temporary = where.control.with_suffix(".new")
    temporary.write_text(json.dumps(record))
    temporary.rename(where.control)


if __name__ == "__main__":
    keep(home())
