"""boot.sh with a worker that can't start: its words reach the control side by themselves."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from blocks.local import processes
from runner.home import REPOSITORY

POD = "local-boot-logs"
# A Python that is one for everything but the worker.
PYTHON = f"""#!/bin/sh
if [ "$2" = prefect ]; then echo "RuntimeError: Failed to reach API" >&2; exit 1; fi
exec {sys.executable} "$@"
"""


@pytest.fixture
def booted(tmp_path: Path) -> Iterator[Path]:
    """The volume of a local pod that is booting."""
    python = tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    for folder in ("home", "volume/run-1"):
        (tmp_path / folder).mkdir(parents=True)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path / "home"),
        "AXR_POD": POD,
        "AXR_RUN": "run-1",
        "AXR_VOLUME": str(tmp_path / "volume"),
        "AXR_REPOSITORY": str(REPOSITORY),
        "AXR_PYTHON": str(python),
        "AXR_CLOUD": "local",
        "AXR_DEADLINE": str(int(time.time()) + 600),
        "AXR_LEASE": "600",
        "PREFECT_API_URL": "http://127.0.0.1:9/api",
    }
    with (tmp_path / "boot.log").open("wb") as output:
        boot = subprocess.Popen(
            ["bash", str(REPOSITORY / "pod" / "boot.sh")],
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    yield tmp_path
    assert processes.kill_all(POD) == []
    boot.wait()


def test_what_a_worker_says_that_can_not_start_is_sent_and_shown(booted: Path) -> None:
    """H56: worker and guard in files of their own; the container's output has all of it too."""
    kept = booted / "volume" / "run-1" / "logs" / POD
    deadline = time.monotonic() + 60
    while not (kept / "worker.log").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert "Failed to reach API" in (kept / "worker.log").read_text()
    assert "Failed to reach API" in (booted / "boot.log").read_text()
    assert (booted / "home" / "axr-logs" / "worker.log").exists()
