"""A hundred task files in one push, twenty pods at once, a stub for axolotl: what it costs here.

Real git, hook, gateway, Prefect and local pods. The database is PostgreSQL where it is installed
(BENCH_DATABASE=sqlite: the default of `axolotl-runner up`). BENCH_FILES and BENCH_PODS make it
smaller. The calls to a cloud are counted at RunPod's emulator, for one pod and for many.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.control_side import Usage, watching
from benchmarks.looks import calls_per_minute
from tests import postgres
from tests.e2e.conftest import Side, make_side
from tests.e2e.pushes import Pushes, connected, stub_environment

FILES, PODS = 100, 20
CREATED_WITHIN, ENDED_WITHIN = 300.0, 90 * 60.0
CONTROL_GB = 4.0
MANY = 100
LOCKED = re.compile("database is locked")
FINAL = ("COMPLETED", "FAILED", "CANCELLED")

Metrics = dict[str, dict[str, Any]]


def run(report: Callable[[str], None]) -> Metrics:
    """Push, wait for all, count; {metric: {value, unit, target, n}}."""
    files = int(os.environ.get("BENCH_FILES") or FILES)
    pods = int(os.environ.get("BENCH_PODS") or PODS)
    one, many = calls_per_minute(1), calls_per_minute(MANY)
    report(f"calls to the cloud: {one:.0f} a minute for 1 pod, {many:.0f} for {MANY}")
    with TemporaryDirectory(prefix="axr-") as folder, _up(Path(folder), pods, report) as side:
        pushes = connected(side, Path(folder))
        with watching(side.home.path) as usage:
            created, ended = _train(pushes, files, report)
        states = Counter(run["state_type"] for found in pushes.runs().values() for run in found)
        locked = _locked(side)
        left = len(list(side.home.pods.glob("*/pod.json")))
    report(f"states: {dict(states)}; {usage.peak_processes} processes of the control side at most")
    return {
        **_metrics(usage, files, created, ended),
        "completed": _metric(100.0 * states["COMPLETED"] / files, "%", 100.0, files),
        "pods_left": _metric(left, "pods", 0, files),
        "database_locked": _metric(locked, "log lines", 0, files),
        "cloud_calls_1_pod": _metric(one, "calls/min", None, 1),
        "cloud_calls_100_pods": _metric(many, "calls/min", one, MANY),
    }


def _metrics(usage: Usage, files: int, created: float, ended: float) -> Metrics:
    return {
        "runs_created": _metric(files / created, "runs/s", None, files),
        "all_ended": _metric(ended / 60, "min", None, files),
        "control_cpu_per_run": _metric(usage.cpu_seconds / files, "CPU s", None, files),
        "control_memory_peak": _metric(usage.peak_bytes / 1e9, "GB", CONTROL_GB, files),
    }


def _metric(value: float, unit: str, target: float | None, n: int) -> dict[str, Any]:
    return {"value": round(value, 3), "unit": unit, "target": target, "n": n}


@contextmanager
def _up(folder: Path, pods: int, report: Callable[[str], None]) -> Iterator[Side]:
    """A control side that allows so many pods at once."""
    side = make_side(folder / "home")
    side.environment["AXR_AXOLOTL_ENV"] = str(stub_environment(folder / "stub"))
    on_sqlite = os.environ.get("BENCH_DATABASE") == "sqlite" or postgres.why_not()
    report(f"database: {'SQLite' if on_sqlite else 'PostgreSQL'}")
    database = nullcontext("") if on_sqlite else postgres.running(
        folder, environment={"AXR_HOME": str(side.home.path)}
    )  # fmt: skip
    with database as url:
        if url:
            side.environment[postgres.URL_VARIABLE] = url
        up = side.cli("up")
        if up.returncode:
            raise SystemExit(up.stderr)
        try:
            side.set_variable("axr_limits", {"pods": pods, "dollars_per_day": None})
            yield side
        finally:
            side.cli("down")


def _train(pushes: Pushes, files: int, report: Callable[[str], None]) -> tuple[float, float]:
    """Push and wait; seconds until all runs were created, and until all had ended."""
    for number in range(files):
        pushes.work.write(
            f"configs/{number:03}.yml", f"base_model: x\nmax_steps: 40\nseed: {number}\n"
        )
    began = time.monotonic()
    pushes.push("Many")
    _wait("runs", lambda: len(pushes.runs()), files, began + CREATED_WITHIN, report)
    created = time.monotonic() - began
    _wait("ended", lambda: _ended(pushes), files, began + ENDED_WITHIN, report)
    return created, time.monotonic() - began


def _ended(pushes: Pushes) -> int:
    return sum(run["state_type"] in FINAL for found in pushes.runs().values() for run in found)


def _wait(
    what: str,
    count: Callable[[], int],
    wanted: int,
    deadline: float,
    report: Callable[[str], None],
) -> None:
    shown = -1
    while (now := count()) < wanted:
        if now // 10 > shown // 10:
            shown = now
            report(f"{now} {what}")
        if time.monotonic() > deadline:
            raise SystemExit(f"only {now} of {wanted} {what}")
        time.sleep(1)


def _locked(side: Side) -> int:
    return sum(
        len(LOCKED.findall(log.read_text(errors="replace"))) for log in side.home.logs.glob("*.log")
    )
