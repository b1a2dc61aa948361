"""The database behind Prefect: PostgreSQL for teams, and SQLite while many write at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests import postgres
from tests.e2e.conftest import Side, make_side
from tests.e2e.pushes import stub_environment

pytestmark = pytest.mark.e2e

WRITERS, LINES_PER_SECOND = 8, 20


@contextmanager
def _up(folder: Path, home: Path, **environment: str) -> Iterator[Side]:
    """A control side whose pods have an axolotl that trains nothing."""
    side = make_side(home)
    side.environment["AXR_AXOLOTL_ENV"] = str(stub_environment(folder / "stub"))
    side.environment.update(environment)
    up = side.cli("up")
    assert up.returncode == 0, up.stderr
    try:
        yield side
    finally:
        side.cli("down")


def _task(folder: Path) -> str:
    file = folder / "task.yml"
    file.write_text("base_model: x\nmax_steps: 40\n")
    return str(file)


@pytest.mark.chaos
def test_runs_and_their_state_live_in_postgresql(empty_home: Path, tmp_path: Path) -> None:
    """A run trains, and the next `up` finds it there; no SQLite file is made."""
    if reason := postgres.why_not():
        pytest.skip(reason)
    # Not tmp_path, whose parents the other user may not enter.
    with TemporaryDirectory(prefix="axr-pg-") as folder, postgres.running(Path(folder)) as url:
        settings = {postgres.URL_VARIABLE: url}
        with _up(tmp_path, empty_home, **settings) as side:
            run = side.start(_task(tmp_path))
            assert side.report(run)["state"] == "completed"
            assert side.cli("up").returncode == 0
            assert side.state(run) == "Completed"
        assert not list(empty_home.rglob("prefect.db"))


@pytest.mark.chaos
def test_a_run_is_not_lost_while_others_keep_sqlite_busy(empty_home: Path, tmp_path: Path) -> None:
    """H55: eight that log twenty lines a second; the run completes, and its pod is given back."""
    with _up(tmp_path, empty_home) as side:
        stop = threading.Event()
        with ThreadPoolExecutor(WRITERS) as pool:
            writers = [pool.submit(_log, side, stop) for _ in range(WRITERS)]
            run = side.start(_task(tmp_path))
            report = side.report(run, within=300)
            stop.set()
        written = sum(writer.result() for writer in writers)
    assert report["state"] == "completed", report["reason"]
    assert written > WRITERS * 10, "they did write"
    assert all(pod["terminated"] for pod in report["pods"])
    assert not list(side.home.pods.glob("*/pod.json"))


def _log(side: Side, stop: threading.Event) -> int:
    """Write lines to the server's log until told to stop; how many it took."""
    taken = 0
    while not stop.wait(1 / LINES_PER_SECOND):
        line: dict[str, Any] = {
            "name": "busy", "level": 20, "message": "x" * 200,
            "timestamp": datetime.now(UTC).isoformat(),
        }  # fmt: skip
        try:
            side.post("logs/", [line])
            taken += 1
        except Exception:  # SQLite is busy, which is the point
            time.sleep(0.1)
    return taken
