"""Real kills: a process of a whole run is killed at a random moment, and the run completes.

Real Prefect, gateway, start script, worker, axolotl and hub (its emulator) on an emulated cloud;
one run at a time, since a dead Prefect server is everybody's. The victims, each twice and on both
clouds: the parent, the control side's worker, the pod's worker, the trainer, the Prefect server,
and all of them at once. A killed trainer is a crash, after which the run goes on from a checkpoint.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import yaml

from benchmarks.resumable import Result, Sleep, Sweep, limit
from deployments import control
from pod.rundir import read_json
from runner.locks import holder
from tests.e2e.conftest import TINY
from tests.e2e.rented import Rented, emulated, rented_task, renting, volume_of
from tests.emulators.clock import read_time
from tests.emulators.containers import processes_of

CLOUDS = ("runpod", "vast")
GPU = {"runpod": "NVIDIA RTX A5000", "vast": "RTX 4090"}
MARK = {"runpod": "RUNPOD_POD_ID", "vast": "CONTAINER_ID"}
ORGANIZATION = "me"
TIMES = 2
# Seconds after the pod was rented: while it boots, prepares, loads the model, trains, publishes.
EARLIEST, LATEST = 1.0, 40.0
WITHIN = 400.0

Victims = Callable[[Rented, str, str], list[int]]


def _parent(rented: Rented, cloud: str, run: str) -> list[int]:
    pid = holder(rented.side.home.locks / f"{run}.lock")
    return [pid] if pid else []


def _control_worker(rented: Rented, cloud: str, run: str) -> list[int]:
    return _of_control(rented, "worker-runs")


def _server(rented: Rented, cloud: str, run: str) -> list[int]:
    return _of_control(rented, "server")


def _pod_worker(rented: Rented, cloud: str, run: str) -> list[int]:
    return [pid for pid in _of_pod(rented, cloud, run) if "worker start" in _command(pid)]


def _trainer(rented: Rented, cloud: str, run: str) -> list[int]:
    records = [read_json(volume_of(pod) / "axr" / run / "trainer.json")
               for pod in _living(rented, run)]  # fmt: skip
    pids = {int(record["pid"]) for record in records if record}
    return sorted(pids & _of_pod(rented, cloud, run))


def _all_at_once(rented: Rented, cloud: str, run: str) -> list[int]:
    return [pid for name, of in VICTIMS.items() if name != "all" for pid in of(rented, cloud, run)]


VICTIMS: dict[str, Victims] = {
    "parent": _parent,
    "control-worker": _control_worker,
    "pod-worker": _pod_worker,
    "trainer": _trainer,
    "server": _server,
    "all": _all_at_once,
}


def names() -> list[str]:
    """One for each cloud, victim and time."""
    return [
        f"{cloud}-{victim}-{number}"
        for cloud in CLOUDS
        for victim in VICTIMS
        for number in range(1, TIMES + 1)
    ]


def sweep_kills(sweep: Sweep, report: Callable[[str], None]) -> None:
    """Do every kill that has no result yet."""
    for cloud in CLOUDS:
        mine = [name for name in names() if name.startswith(cloud)]
        if not set(mine) <= set(sweep.done()):
            _work(Sweep(sweep.folder, workers=1), cloud, mine, report)


def _work(sweep: Sweep, cloud: str, mine: list[str], report: Callable[[str], None]) -> None:
    with (
        emulated("hub") as hub,
        renting(cloud, HF_TOKEN="hf_write") as rented,
        TemporaryDirectory() as folder,
    ):
        rented.set(keep_folders=True)
        if cloud == "vast":
            rented.set(gaps=False)

        def do(name: str, sleep: Sleep) -> Result:
            place = Path(folder) / name
            place.mkdir(exist_ok=True)
            return _one(rented, hub, name, place, sleep)

        sweep.work(mine, do, report, limit_s=limit())


def _one(rented: Rented, hub: str, name: str, folder: Path, sleep: Sleep) -> Result:
    cloud, _, rest = name.partition("-")
    victim = rest.rpartition("-")[0]
    moment = random.Random(name).uniform(EARLIEST, LATEST)
    file = rented_task(
        folder,
        TINY,
        long=True,
        save_steps=50,
        cloud=cloud,
        gpu=GPU[cloud],
        checkpoint_store=f"hf://{ORGANIZATION}/{name}-checkpoints",
        env={"HF_ENDPOINT": hub},  # not offline: it publishes
    )
    keys = yaml.safe_load(Path(file).read_text()) | {"hub_model_id": f"{ORGANIZATION}/{name}"}
    Path(file).write_text(yaml.safe_dump(keys, sort_keys=False))
    run = rented.side.start(file)
    began = time.monotonic()
    while not rented.pods_of(run):
        sleep(0.2)
    sleep(moment)
    killed = _kill(VICTIMS[victim], rented, cloud, run, sleep)
    while not rented.side.has_ended(run) and time.monotonic() - began < WITHIN:
        sleep(0.5)
    while _living(rented, run) and time.monotonic() - began < WITHIN:
        sleep(0.5)
    if not rented.side.has_ended(run):
        (folder.parent / f"{name}.log").write_text(rented.side.last_words())
    return _result(rented, hub, name, run, moment, killed)


def _kill(of: Victims, rented: Rented, cloud: str, run: str, sleep: Sleep) -> int:
    """SIGKILL for the victims, as soon as there are some; how many there were."""
    while not rented.side.has_ended(run):
        pids = of(rented, cloud, run)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if pids:
            return len(pids)
        sleep(0.1)
    return 0


def _result(rented: Rented, hub: str, name: str, run: str, moment: float, killed: int) -> Result:
    path = rented.side.home.runs / run / "report.json"
    report: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    pods = rented.pods_of(run)
    return {
        "reached": killed > 0,
        "killed": killed,
        "moment": round(moment, 1),
        "state": str(rented.side.get(f"flow_runs/{run}")["state"]["type"]),
        "outcome": report.get("outcome"),
        "reason": report.get("reason"),
        "attempts": len(report.get("attempts", [])),
        "left": len(_living(rented, run)),
        "at_once": most_at_once(pods),
        "pods": len(pods),
        "model_kept": _is_published(hub, name),
        "violations": len(rented.state["violations"]) or None,
    }


def most_at_once(pods: Sequence[Mapping[str, Any]]) -> int:
    """How many of these lived at the same time, over all time."""
    spans = [_span(pod) for pod in pods]
    return max((sum(a <= start < b for a, b in spans) for start, _ in spans), default=0)


def _span(pod: Mapping[str, Any]) -> tuple[float, float]:
    """When it was made and ended, in the words of either cloud; a living one ends never."""
    if "createdAt" in pod:
        ended = pod.get("endedAt")
        return read_time(pod["createdAt"]), read_time(ended) if ended else float("inf")
    return float(pod["start_date"]), float(pod.get("ended_at") or "inf")


def _is_published(hub: str, name: str) -> bool:
    """Whether the hub has the weights."""
    repositories = httpx.get(f"{hub}/_state", timeout=30).raise_for_status().json()["repos"]
    files = repositories.get(f"{ORGANIZATION}/{name}", {}).get("files", {})
    return any(file.endswith(".safetensors") for file in files)


def _living(rented: Rented, run: str) -> list[dict[str, Any]]:
    ended = {pod["id"] for pod in rented.state["ended"]}
    return [pod for pod in rented.pods_of(run) if pod["id"] not in ended]


def _of_control(rented: Rented, name: str) -> list[int]:
    side = control.running(rented.side.home)
    return [side.processes[name].pid] if side and side.processes[name].alive() else []


def _of_pod(rented: Rented, cloud: str, run: str) -> set[int]:
    marks = [f"{MARK[cloud]}={pod['id']}" for pod in _living(rented, run)]
    return {pid for mark in marks for pid in processes_of(mark)}


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""
