"""A Prefect server of its own, with our pools and deployments, for a process that kills parents."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx

from runner.home import REPOSITORY

READY_WITHIN = 120.0
COMMAND = ("prefect", "server", "start", "--no-services", "--host", "127.0.0.1")
# (flow, deployment, pool): what prefect.yaml registers, without its 8 s.
DEPLOYMENTS = (
    ("finetune", "finetune", "control"),
    ("sweep", "sweep", "control"),
    ("prepare", "pod", "pods"),
    ("train", "pod", "pods"),
    ("publish", "pod", "pods"),
)


@contextmanager
def prefect_server(folder: Path) -> Iterator[str]:
    """The address of the API of a server whose home is in `folder`."""
    port = _free_port()
    url = f"http://127.0.0.1:{port}/api"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    with (folder / "server.log").open("ab") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", *COMMAND, "--port", str(port)],
            cwd=REPOSITORY,
            env={
                **clean,
                "PREFECT_HOME": str(folder / "prefect"),
                "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            },
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        _wait_for(url, server, folder)
        _register(url)
        yield url
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            if server.poll() is None:
                os.killpg(server.pid, number)
                try:
                    server.wait(8)
                except subprocess.TimeoutExpired:
                    continue


# What happens to flow runs, by the client of this process. Imported late: Prefect reads its
# settings once, and the address above must be there by then.


def new_run(content: str) -> str:
    """A `finetune` run of this task file, Scheduled; its id."""
    from tasks.api import api

    deployment = api().read_deployment_by_name("finetune/finetune")
    parameters = {"task_file": "crash.yml", "content": content}
    return str(api().create_flow_run_from_deployment(deployment.id, parameters=parameters).id)


def state_of(run: str) -> str:
    """The type of its state."""
    from tasks.api import api

    state = api().read_flow_run(UUID(run)).state
    assert state is not None, "a flow run always has a state on the server"
    return str(state.type.value)


def set_state(run: str, state: Any) -> None:
    """As a worker or an engine does."""
    from tasks.api import api

    api().set_flow_run_state(UUID(run), state, force=True)


def sweep_is_on() -> bool:
    """Whether the sweep's schedule is active."""
    from tasks.api import api

    (schedule,) = api().read_deployment_by_name("sweep/sweep").schedules
    return bool(schedule.active)


def set_sweep(*, active: bool) -> None:
    """Switch its schedule."""
    from tasks.api import api

    deployment = api().read_deployment_by_name("sweep/sweep")
    (schedule,) = deployment.schedules
    api().update_deployment_schedule(deployment.id, schedule.id, active=active)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for(url: str, server: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + READY_WITHIN
    while True:
        with suppress(httpx.HTTPError):  # still starting
            if httpx.get(f"{url}/health", timeout=5, verify=False).is_success:
                return
        if server.poll() is not None or time.monotonic() > deadline:
            words = (folder / "server.log").read_text(errors="replace")[-2000:]
            raise RuntimeError(f"the Prefect server did not come:\n{words}")
        time.sleep(0.3)


def _register(url: str) -> None:
    with httpx.Client(base_url=url, timeout=30) as client:

        def post(path: str, body: dict[str, Any]) -> str:
            return str(client.post(path, json=body).raise_for_status().json()["id"])

        for pool in ("control", "pods"):
            post("/work_pools/", {"name": pool, "type": "process"})
        post("/work_pools/control/queues", {"name": "runs"})
        for flow, name, pool in DEPLOYMENTS:
            body: dict[str, Any] = {
                "name": name,
                "flow_id": post("/flows/", {"name": flow}),
                "work_pool_name": pool,
                "enforce_parameter_schema": False,
            }
            if flow == "sweep":
                body["schedules"] = [{"active": False, "schedule": {"interval": 60}}]
            post("/deployments/", body)
