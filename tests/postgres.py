"""A PostgreSQL of its own for a test or a bench: an empty cluster on a loopback port."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

URL_VARIABLE = "PREFECT_SERVER_DATABASE_CONNECTION_URL"
READY_WITHIN = 60.0


def why_not() -> str | None:
    """Why there can be none here, None when there can."""
    if _binaries() is None:
        return "needs PostgreSQL (apt-get install postgresql)"
    if os.geteuid() == 0 and _other_user() is None:
        return "PostgreSQL does not run as root, and there is no user postgres"
    return None


@contextmanager
def running(folder: Path, *, environment: Mapping[str, str] = os.environ) -> Iterator[str]:
    """Run one in `folder`; its address as Prefect wants it."""
    binaries = _binaries()
    assert binaries is not None, why_not()
    user = _other_user() if os.geteuid() == 0 else None
    # All three: root's group alone would be shut out of what others may enter.
    owner: dict[str, Any] = {"user": user, "group": user, "extra_groups": []} if user else {}
    data = folder / "postgres"
    data.mkdir()
    if user is not None:
        shutil.chown(data, user)
        for each in (folder, *folder.parents):  # the other user must get through
            if each.stat().st_uid == 0 and not each.stat().st_mode & 0o1:
                each.chmod(each.stat().st_mode | 0o1)
    subprocess.run(
        [binaries / "initdb", "-D", data, "-U", "prefect", "-A", "trust", "--no-sync"],
        check=True,
        stdout=subprocess.DEVNULL,
        cwd=data,
        **owner,
    )
    port = _free_port()
    settings = {"listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": "",
                "fsync": "off", "max_connections": "200"}  # fmt: skip
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    with (data / "log").open("wb") as log:
        process = subprocess.Popen(
            [binaries / "postgres", "-D", data, *options],
            stdout=log,
            stderr=log,
            cwd=data,
            env=dict(environment),
            **owner,
        )
    try:
        _wait(binaries, port, process)
        yield f"postgresql+asyncpg://prefect:unused@127.0.0.1:{port}/postgres"
    finally:
        process.terminate()
        process.wait(60)


def _binaries() -> Path | None:
    """The folder of the newest one that is installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).parent if on_path else None


def _other_user() -> str | None:
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError:
        return None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(binaries: Path, port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + READY_WITHIN
    ask = [binaries / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
    while subprocess.run(ask).returncode:
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("PostgreSQL does not come up")
        time.sleep(0.1)
