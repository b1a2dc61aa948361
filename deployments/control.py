"""The control side seen from outside: is it up, bring it up, take it down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from deployments.processes import Process
from runner.home import REPOSITORY, Home

READY_WITHIN = 180.0
ALREADY = 3  # the exit code of a keeper that finds another one in its home


@dataclass(frozen=True)
class Control:
    """A running control side: the API's address and its processes by name."""

    api: str
    processes: dict[str, Process]

    @property
    def ui(self) -> str:
        return self.api.removesuffix("/api")


def environment(where: Home) -> dict[str, str]:
    """The variables that all processes of the control side share; Prefect's home is ours, not the
    user's.
    """
    settings = {
        "AXR_HOME": str(where.path),
        "PREFECT_HOME": str(where.prefect),
        "PYTHONPATH": str(REPOSITORY),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        # The sweep's schedule would be planned an hour ahead: 60 rows each time it is switched on.
        "PREFECT_SERVER_SERVICES_SCHEDULER_MIN_SCHEDULED_TIME": "PT2M",
        "PREFECT_SERVER_SERVICES_SCHEDULER_MIN_RUNS": "1",
        "PREFECT_CLI_PROMPT": "false",
        "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
        "PREFECT_WORKER_QUERY_SECONDS": "1",
    }
    return {**os.environ, **settings}


def running(where: Home) -> Control | None:
    """The control side of this home, None when its keeper does not live."""
    if not where.control.exists():
        return None
    record = json.loads(where.control.read_text())
    found = Control(
        record["api"], {name: Process(**one) for name, one in record["processes"].items()}
    )
    return found if found.processes["keeper"].alive() else None


def up(where: Home) -> Control:
    """Bring the control side up, or find it up; SystemExit with a message when it does not come."""
    already = running(where)
    if already:
        return already
    _end_leftovers(where)
    where.logs.mkdir(parents=True, exist_ok=True)
    where.link_runs()
    log = where.logs / "keeper.log"
    with log.open("ab") as output:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "deployments.keeper"],
            cwd=REPOSITORY,
            env=environment(where),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    deadline = time.monotonic() + READY_WITHIN
    while not (started := running(where)):
        if keeper.poll() not in (None, ALREADY) or time.monotonic() > deadline:
            raise SystemExit(f"the control side did not start; its last words:\n{_last_lines(log)}")
        time.sleep(0.1)
    return started


def down(where: Home) -> bool:
    """Take the control side down; False when it was not up. Pods and what they train are left
    alone.
    """
    control = running(where)
    if control:
        control.processes["keeper"].end(grace=40.0)
    _end_leftovers(where)
    return control is not None


def _end_leftovers(where: Home) -> None:
    """End what a killed keeper left behind."""
    if not where.control.exists():
        return
    for name, one in json.loads(where.control.read_text())["processes"].items():
        process = Process(**one)
        if name != "keeper" and process.alive():
            process.end(grace=10.0)
    where.control.unlink(missing_ok=True)


def _last_lines(log: Path, count: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-count:])
