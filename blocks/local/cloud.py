"""Pods on this machine: a folder each, a clean environment, the boot script of rented pods.

<home>/pods/<id>/   pod.json  home/  volume/  boot.log The volume outlives the pod, as a
network volume does: `volume/<run>` is a link to the run's own folder, so ending a local pod never
costs a checkpoint, and `volume/cache` one to the cache of this machine. Nothing of this is held in
memory: pods outlive the processes that made them, and anyone can list and end them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from blocks.cloud import Pod, PodOrder, PodPhase, PodStatus, Seen
from blocks.local import processes
from pod.rundir import replace_text
from pod.sending import end_of
from runner.errors import NoCapacity, PodLost, TryAgain
from runner.home import REPOSITORY, Home, axolotl_environment, home

# What a pod may know of this machine's environment: where programs are and how to speak to the
# terminal.
PASSED_ON = (
    "PATH",
    "LANG",
    "LC_ALL",
    "TZ",
    "OMP_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
    "LD_LIBRARY_PATH",
)


# Seconds that the use of the processors is measured over.
CPU_OVER = 5.0


@dataclass(frozen=True)
class LocalCloud:
    """The Cloud interface over folders and processes.

    `price_per_hour` is what this machine is said to cost, USD.
    """

    where: Home
    price_per_hour: float = 0.0
    name: str = "local"

    def create(self, order: PodOrder) -> Pod:
        """The run's pod, running: found, started again, or made. NoCapacity where this machine is
        said to cost more than the order allows.
        """
        pod = self.find(order.run)
        if pod is None and self.price_per_hour > order.max_price_per_hour:
            raise NoCapacity(
                f"this machine costs ${self.price_per_hour:.2f} per hour (AXR_LOCAL_PRICE), more "
                f"than max_price_per_hour: {order.max_price_per_hour:g}"
            )
        pod = pod or self._make(order)
        if not processes.marked(pod.id):
            self._boot(pod, order)
        return pod

    def find(self, run: str) -> Pod | None:
        """The pod of this run, None when there is none."""
        return next((pod for pod in self.list_ours() if pod.run == run), None)

    def list_ours(self) -> list[Pod]:
        """All local pods, oldest first."""
        records = sorted(self.where.pods.glob("*/pod.json"))
        return sorted((self._read(record) for record in records), key=lambda pod: pod.created)

    def survey(self) -> list[Seen]:
        """All local pods with what they do."""
        found = []
        for pod in self.list_ours():
            with suppress(PodLost):  # ended since
                found.append(Seen(pod, self.status(pod)))
        return found

    def status(self, pod: Pod) -> PodStatus:
        """Phase and telemetry from /proc; PodLost when the pod's folder is gone."""
        if not self._record(pod.id).exists():
            raise PodLost(f"the local pod {pod.id} is gone")
        used = processes.usage(pod.id)
        return PodStatus(
            phase=PodPhase.RUNNING if used.processes else PodPhase.STOPPED,
            uptime=(datetime.now(UTC) - pod.created).total_seconds(),
            cpu_percent=self._cpu_percent(pod.id, used.cpu_seconds),
            ram_bytes=used.ram_bytes,
        )

    def terminate(self, pod: Pod) -> None:
        """Kill the pod's processes and remove its folder; the run's own folder stays."""
        left = processes.kill_all(pod.id)
        if left:
            raise TryAgain(f"processes {left} of the local pod {pod.id} do not end")
        shutil.rmtree(_scratch(pod.id), ignore_errors=True)
        shutil.rmtree(self._record(pod.id).parent, ignore_errors=True)
        if any(other.id == pod.id for other in self.list_ours()):
            raise TryAgain(
                f"the folder of the local pod {pod.id} can't be removed: {self.where.pods / pod.id}"
            )

    def price(self, order: PodOrder) -> float:
        """What this machine is said to cost, USD per hour."""
        return self.price_per_hour

    def prices(self, order: PodOrder) -> dict[str, float]:
        """None: this machine has the GPUs that it has, and they are not chosen by name."""
        return {}

    def log(self, pod: Pod) -> str:
        """The end of boot.log: the boot script, the guard and the worker."""
        return end_of(self.where.pods / pod.id / "boot.log")

    def _cpu_percent(self, pod_id: str, cpu_seconds: float) -> float | None:
        """The share of all processors since the look before this one, 0–100; None at the first.

        What processes used that have ended since is not in it.
        """
        noted = self.where.pods / pod_id / "usage.json"
        now = time.time()
        try:
            before = json.loads(noted.read_text())
        except (FileNotFoundError, ValueError):
            before = None
        if before and now - before["t"] < CPU_OVER:
            return before.get("percent")  # type: ignore[no-any-return]
        percent = None
        if before:
            used = max(0.0, cpu_seconds - before["cpu_seconds"])
            percent = min(100.0, 100 * used / (now - before["t"]) / (os.cpu_count() or 1))
        replace_text(noted, json.dumps({"t": now, "cpu_seconds": cpu_seconds, "percent": percent}))
        return percent

    def _record(self, pod_id: str) -> Path:
        return self.where.pods / pod_id / "pod.json"

    def _read(self, record: Path) -> Pod:
        facts = json.loads(record.read_text())
        return Pod(
            id=record.parent.name,
            name=facts["name"],
            cloud=self.name,
            created=datetime.fromisoformat(facts["created"]),
            price_per_hour=facts["price_per_hour"],
        )

    def _make(self, order: PodOrder) -> Pod:
        created = datetime.now(UTC)
        pod_id = f"local-{uuid4().hex[:8]}"
        folder = self.where.pods / pod_id
        for part in ("home", "volume"):
            (folder / part).mkdir(parents=True)
        (folder / "volume" / order.run).symlink_to(self.where.run(order.run))
        self.where.cache.mkdir(parents=True, exist_ok=True)
        (folder / "volume" / "cache").symlink_to(self.where.cache)
        facts = {
            "name": order.name,
            "created": created.isoformat(),
            "price_per_hour": self.price_per_hour,
        }
        temporary = folder / "pod.json.new"
        temporary.write_text(json.dumps(facts))
        temporary.rename(self._record(pod_id))
        return self._read(self._record(pod_id))

    def _boot(self, pod: Pod, order: PodOrder) -> None:
        folder = self.where.pods / pod.id
        with (folder / "boot.log").open("ab") as log:
            subprocess.Popen(
                ["bash", str(REPOSITORY / "pod" / "boot.sh")],
                cwd=REPOSITORY,
                env=self._environment(pod, order),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _environment(self, pod: Pod, order: PodOrder) -> dict[str, str]:
        folder = self.where.pods / pod.id
        scratch = _scratch(pod.id)
        scratch.mkdir(mode=0o700, exist_ok=True)
        own = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        return {
            **own,
            "HOME": str(folder / "home"),
            "TMPDIR": str(scratch),
            "PREFECT_HOME": str(folder / "home" / ".prefect"),
            "AXR_CLOUD": self.name,
            "AXR_REPOSITORY": str(REPOSITORY),
            "AXR_PYTHON": sys.executable,
            "AXR_AXOLOTL_ENV": str(axolotl_environment()),
            **order.environment,
            processes.MARK: pod.id,
            "AXR_RUN": order.run,
            "AXR_VOLUME": str(folder / "volume"),
            "AXR_DEADLINE": str(int(order.deadline.timestamp())),
        }


def _scratch(pod_id: str) -> Path:
    """The pod's TMPDIR, outside of its folder: a socket's path has at most 107 bytes, and the
    data loading of axolotl makes sockets there ("AF_UNIX path too long").
    """
    return Path(tempfile.gettempdir()) / f"axr-{pod_id}"


def local_cloud(environment: Mapping[str, str] = os.environ) -> LocalCloud:
    """The local cloud of this home; `AXR_LOCAL_PRICE` says what an hour of this machine costs (USD,
    default 0).
    """
    return LocalCloud(home(), price_per_hour=float(environment.get("AXR_LOCAL_PRICE") or 0.0))
