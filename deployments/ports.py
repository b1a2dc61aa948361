"""Ports for our Prefect server and gateway that no other control side takes at the same moment."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runner.home import Home
from runner.locks import LockHeld, hold

USUAL = {"server": 4200, "gateway": 4280}
MOST_TRIES = 50


@contextmanager
def own_port(where: Home, name: str = "server", *, locks: Path | None = None) -> Iterator[int]:
    """The port of last time, else the usual one, else any; ours as long as the block lasts.

    Links into the UI stay true that way. The lock keeps two keepers that start at once from
    choosing the same port: the second server would fail, and its keeper take the first for its own.
    """
    record = where.path / ("port" if name == "server" else f"{name}.port")
    folder = locks or Path(tempfile.gettempdir())
    for port in _candidates(int(record.read_text()) if record.exists() else USUAL[name]):
        try:
            with hold(folder / f"axr-port-{port}.lock"):
                if not _is_free(port):
                    continue
                where.path.mkdir(parents=True, exist_ok=True)
                record.write_text(str(port))
                yield port
                return
        except LockHeld:
            continue
    raise SystemExit(f"no free port on 127.0.0.1 for the {name}")


def _candidates(wanted: int) -> Iterator[int]:
    yield wanted
    for _ in range(MOST_TRIES):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        yield port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
