"""A whole control side in a home of its own: real Prefect, real workers, real axolotl."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from blocks.local import processes
from blocks.local.cloud import LocalCloud
from deployments import control
from runner.home import REPOSITORY, Home, axolotl_environment
from runner.locks import holder
from tests.e2e.training import TrainServer, serving

TINY = "configs/examples/tiny.yml"
SPIKE = "configs/examples/spike.yml"


def longer(folder: Path, steps: int = 200) -> str:
    """The tiny task file with more steps (70 ms each), so that there is a middle to act in."""
    settings = yaml.safe_load((REPOSITORY / TINY).read_text())
    settings |= {"max_steps": steps, "save_steps": 50, "eval_steps": 100, "num_epochs": 20}
    file = folder / "longer.yml"
    file.write_text(yaml.safe_dump(settings, sort_keys=False))
    return str(file)


def needs_axolotl() -> None:
    """Skip, with the reason, where the trainer's environment was not set up."""
    if not (axolotl_environment() / "bin" / "axolotl").exists():
        pytest.skip("needs the trainer's environment: make setup")


@dataclass(frozen=True)
class Side:
    """The control side under test, seen through its command line, its API and its files."""

    home: Home
    environment: dict[str, str]

    def cli(self, *arguments: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        """Run `axolotl-runner`."""
        return subprocess.run(
            [sys.executable, "-m", "deployments.cli", *arguments],
            cwd=REPOSITORY,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def start(self, file: str = TINY, *options: str) -> str:
        """Start a run and return its id."""
        done = self.cli("run", file, *options)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()[1]

    def get(self, path: str) -> Any:
        """GET from the Prefect API."""
        return self._answer(httpx.get(f"{self._api}/{path}", timeout=30))

    def post(self, path: str, body: Any) -> Any:
        """POST to the Prefect API."""
        return self._answer(httpx.post(f"{self._api}/{path}", json=body, timeout=30))

    def label(self, run: str, **labels: Any) -> None:
        """Write facts of ours to the run, as its parent does."""
        facts = {f"axr.{name}": value for name, value in labels.items()}
        url = f"{self._api}/flow_runs/{run}/labels"
        httpx.patch(url, json=facts, timeout=30).raise_for_status()

    def set_variable(self, name: str, value: Any) -> None:
        """Change a variable of Prefect, as people do in the UI."""
        url = f"{self._api}/variables/name/{name}"
        httpx.patch(url, json={"value": value}, timeout=30).raise_for_status()

    def state(self, run: str) -> str:
        """The name of the run's state; while the server is away, that it is away."""
        try:
            return str(self.get(f"flow_runs/{run}")["state"]["name"])
        except httpx.HTTPError:
            return "server away"

    def children(self, run: str) -> list[dict[str, Any]]:
        """The flow runs on pods of this run."""
        found = self.post(
            "flow_runs/filter", {"flow_runs": {"tags": {"all_": [f"run:{run}"]}}, "limit": 50}
        )
        return [child for child in found if child["idempotency_key"]]

    def events(self, run: str, kind: str | None = None) -> list[dict[str, Any]]:
        """The events of the run's trainer so far."""
        file = self.home.runs / run / "events.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        found = [json.loads(line) for line in lines if line.endswith("}")]
        return [event for event in found if kind in (None, event["kind"])]

    def steps(self, run: str) -> list[tuple[int, float]]:
        """(step, loss) in the order in which they were trained."""
        return [(event["step"], event["loss"]) for event in self.events(run, "step")]

    def wait(self, what: str, ready: Callable[[], object], *, within: float = 150) -> None:
        """Wait until `ready` is true; the test fails with `what` after `within` seconds."""
        deadline = time.monotonic() + within
        while not ready():
            if time.monotonic() > deadline:
                pytest.fail(f"not within {within:.0f} s: {what}\n{self.last_words()}")
            time.sleep(0.2)

    def wait_for_step(self, run: str, step: int) -> None:
        """Wait until the run has trained this step."""
        self.wait(f"step {step}", lambda: any(at >= step for at, _ in self.steps(run)))

    def report(self, run: str, *, within: float = 150) -> dict[str, Any]:
        """Wait for the end of the run and return its report."""
        self.wait(
            f"the end of {run}, now {self.state(run)}",
            lambda: self.has_ended(run),
            within=within,
        )
        found: dict[str, Any] = json.loads((self.home.runs / run / "report.json").read_text())
        return found

    def has_ended(self, run: str) -> bool:
        """A crashed parent has not: it is revived."""
        try:
            state = self.get(f"flow_runs/{run}")["state"]["type"]
        except httpx.HTTPError:
            return False
        return state in ("COMPLETED", "FAILED", "CANCELLED")

    def pod_processes(self, run: str, word: str) -> list[int]:
        """The pids of the run's pod whose command line holds `word`."""
        return [
            pid
            for record in self.home.pods.glob("*/pod.json")
            if json.loads(record.read_text())["name"] == f"axr-{run}"
            for pid in processes.marked(record.parent.name)
            if word in _command(pid)
        ]

    def parent(self, run: str) -> int:
        """The pid of the run's parent."""
        pid = holder(self.home.locks / f"{run}.lock")
        assert pid is not None, "the run has no living parent"
        return pid

    def control_process(self, name: str) -> int:
        """The pid of the server or a worker of the control side."""
        side = control.running(self.home)
        assert side is not None
        return side.processes[name].pid

    def last_words(self) -> str:
        """The ends of all logs, for a failed test."""
        logs = [*self.home.logs.glob("*.log"), *self.home.pods.glob("*/boot.log")]
        return "\n".join(
            f"--- {log.name}\n" + log.read_text(errors="replace")[-1500:] for log in logs
        )

    @property
    def _api(self) -> str:
        side = control.running(self.home)
        assert side is not None, "the control side is not up"
        return side.api

    @staticmethod
    def _answer(response: httpx.Response) -> Any:
        response.raise_for_status()
        return response.json() if response.content else None


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def make_side(folder: Path) -> Side:
    """A control side that is not up yet, in an empty home."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    environment = {**clean, "AXR_HOME": str(folder), "OMP_NUM_THREADS": "1"}
    return Side(Home(folder.resolve()), environment)


def _end_pods(home: Home) -> None:
    """What a test that failed or was interrupted left running."""
    cloud = LocalCloud(home)
    for pod in cloud.list_ours():
        cloud.terminate(pod)


@pytest.fixture
def empty_home() -> Iterator[Path]:
    """A folder for a home. Not tmp_path: pytest keeps those of its last 3 sessions only."""
    with tempfile.TemporaryDirectory(prefix="axr-") as folder:
        try:
            yield Path(folder)
        finally:
            _end_pods(Home(Path(folder).resolve()))


@pytest.fixture(scope="session")
def side() -> Iterator[Side]:
    """A control side that is up for the whole session."""
    needs_axolotl()
    with tempfile.TemporaryDirectory(prefix="axr-") as folder:
        made = make_side(Path(folder))
        up = made.cli("up")
        assert up.returncode == 0, up.stderr
        try:
            yield made
        finally:
            made.cli("down")
            _end_pods(made.home)


@pytest.fixture(scope="session")
def train_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrainServer]:
    """Trains with axolotl that was loaded once for the session."""
    needs_axolotl()
    log = tmp_path_factory.mktemp("server") / "log"
    with serving(axolotl_environment(), log) as server:
        yield server
