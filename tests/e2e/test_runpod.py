"""A whole run on rented pods: the emulator's, which run the real start script and real axolotl."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from runner.home import REPOSITORY, axolotl_environment
from tests.e2e.conftest import SPIKE, TINY, Side, make_side, needs_axolotl

pytestmark = pytest.mark.e2e

KEY = "rpa_e2e_account_key"
SECRETS = {"HF_TOKEN": "hf_e2e_token_of_the_run", "WANDB_API_KEY": "wandb_e2e_key_of_the_run"}
ASKED = "a \"quoted\" 'value' with $HOME, `ticks` and\na second line"


@dataclass(frozen=True)
class Rented:
    """A control side whose RunPod is the emulator."""

    side: Side
    origin: str
    volume: str

    @property
    def state(self) -> dict[str, Any]:
        """What the emulator knows."""
        return dict(httpx.get(f"{self.origin}/_state", timeout=30).json())

    def set(self, **switches: Any) -> None:
        """Switch faults."""
        httpx.post(f"{self.origin}/_faults", json=switches, timeout=30).raise_for_status()

    def pods_of(self, run: str) -> list[dict[str, Any]]:
        """Every pod that this run ever had."""
        state = self.state
        return [pod for pod in state["pods"] + state["ended"] if pod["name"] == f"axr-{run}"]


@pytest.fixture(scope="module")
def rented() -> Iterator[Rented]:
    """The emulator and a control side, for all tests of this module."""
    needs_axolotl()
    image = {"AXR_PYTHON": sys.executable, "AXR_AXOLOTL_ENV": str(axolotl_environment())}
    with tempfile.TemporaryDirectory(prefix="axr-") as folder:
        emulator = subprocess.Popen(
            [sys.executable, "-m", "tests.emulators.runpod", "--port", "0", "--key", KEY],
            cwd=REPOSITORY,
            env={**os.environ, "AXR_EMULATED_IMAGE_ENV": json.dumps(image)},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert emulator.stdout is not None
        url = emulator.stdout.readline().strip()
        made = make_side(Path(folder) / "home")
        made.environment.update(SECRETS, AXR_RUNPOD_URL=url, RUNPOD_API_KEY=KEY)
        try:
            up = made.cli("up")
            assert up.returncode == 0, up.stderr
            yield Rented(made, url.removesuffix("/v2"), _volume(url))
        finally:
            made.cli("down")
            emulator.terminate()
            emulator.wait(30)


def _volume(url: str) -> str:
    """A network volume, made by the account's owner; where the GPU of these tests is."""
    body = {"name": "e2e", "size": 10, "dataCenter": "EU-RO-1", "type": "STANDARD"}
    headers = {"Authorization": f"Bearer {KEY}"}
    made = httpx.post(f"{url}/network-volumes", json=body, headers=headers, timeout=30)
    return str(made.raise_for_status().json()["id"])


def _task(folder: Path, rented: Rented, example: str, *, long: bool = False, **changes: Any) -> str:
    """An example for RunPod; what git does not hold is named by where it lies on this machine.

    `long`: enough steps (70 ms each) for something to happen in the middle.
    """
    keys = yaml.safe_load((REPOSITORY / example).read_text())
    if long:
        keys |= {"max_steps": 200, "save_steps": 10, "eval_steps": 100, "num_epochs": 20}
    tiny = REPOSITORY / "configs" / "examples" / "tiny"
    keys |= {"base_model": str(tiny / "model")}
    keys["datasets"] = [{**keys["datasets"][0], "path": str(tiny / "data.jsonl")}]
    del keys["dataset_prepared_path"]
    keys["runner"] = {
        "cloud": "runpod",
        "gpu": "NVIDIA RTX A5000",
        "network_volume": rented.volume,
        "checkpoint_store": "volume",
        "env": {"HF_HUB_OFFLINE": "1", "ASKED": ASKED},
        **changes,
    }
    file = folder / "rented.yml"
    file.write_text(yaml.safe_dump(keys, sort_keys=False))
    return str(file)


def test_a_run_on_a_rented_pod_comes_back_from_its_spike(rented: Rented, tmp_path: Path) -> None:
    """One pod through the gateway, gone at the end, billed to the cent as the report says."""
    run = rented.side.start(_task(tmp_path, rented, SPIKE))
    report = rented.side.report(run, within=200)
    assert report["state"] == "completed", report["reason"]
    spike, completed = report["attempts"]
    assert (spike["outcome"], completed["outcome"]) == ("loss_spike", "completed")
    assert completed["from_checkpoint"] < spike["onset_step"]
    assert {spike["cloud"], completed["cloud"]} == {"runpod"}

    (pod,) = rented.pods_of(run)
    assert pod["status"] == "TERMINATED"
    assert rented.state["pods"] == []
    assert rented.state["violations"] == []
    (bill,) = report["pods"]
    assert bill["id"] == pod["id"]
    assert bill["terminated"]
    assert report["cost_usd"] == pytest.approx(rented.state["bill"][pod["id"]], abs=0.005)
    assert pod["env"]["ASKED"] == ASKED
    assert KEY not in json.dumps(pod["env"])


def test_nothing_that_a_failing_run_wrote_holds_a_secret(rented: Rented, tmp_path: Path) -> None:
    """Keys, tokens and values of `env` stay where they are needed: on the pod."""
    run = rented.side.start(
        _task(tmp_path, rented, TINY, entry="echo preparing; no-such-program --now")
    )
    report = rented.side.report(run, within=150)
    assert (report["state"], report["outcome"]) == ("failed", "crash")
    assert "`entry` ended with code 127" in report["reason"]
    (pod,) = rented.pods_of(run)
    assert pod["status"] == "TERMINATED"

    secrets = {"account": KEY, "pod": pod["key"], "token": pod["env"]["AXR_TOKEN"], **SECRETS}
    home = rented.side.home
    found = [
        f"{name} in {file.relative_to(home.path)}"
        for file in home.path.rglob("*")
        if file.is_file()
        for name, secret in secrets.items()
        if secret.encode() in file.read_bytes()
    ]
    assert found == []
    logs = rented.side.post("logs/filter", {"limit": 200, "sort": "TIMESTAMP_DESC"})
    said = json.dumps([logs, report, rented.side.get(f"flow_runs/{run}")["state"]])
    assert not [name for name, secret in secrets.items() if secret in said]
    assert "and a second line" not in said, "a value of `env`"


@pytest.mark.chaos
def test_a_container_that_is_started_again_goes_on(rented: Rented, tmp_path: Path) -> None:
    """H17: the same pod, no second trainer at once, and the run completes from a checkpoint."""
    run = rented.side.start(_task(tmp_path, rented, TINY, long=True))
    pod, _ = _training(rented, run)
    rented.set(restart_container=pod["id"])
    report = rented.side.report(run, within=300)
    assert report["state"] == "completed", report["reason"]
    assert report["final_step"] == report["planned_steps"] == 200
    (pod,) = rented.pods_of(run)
    assert pod["boots"] == 2
    assert pod["status"] == "TERMINATED"


@pytest.mark.chaos
def test_a_run_goes_on_elsewhere_when_its_pod_is_taken(rented: Rented, tmp_path: Path) -> None:
    """H23: the network volume has the checkpoints, so another pod trains the rest."""
    run = rented.side.start(_task(tmp_path, rented, TINY, long=True))
    pod, folder = _training(rented, run)
    rented.set(kill_pod=pod["id"])
    report = rented.side.report(run, within=200)
    assert report["state"] == "completed", report["reason"]
    lost, last = report["attempts"]
    assert (lost["outcome"], lost["pod"]) == ("preempted", pod["id"])
    assert last["pod"] != pod["id"]
    trained = max(event["step"] for event in _events(folder, "step", attempt=1))
    assert trained - last["from_checkpoint"] <= 10, "at most one save interval is lost"
    assert last["first_step"] == last["from_checkpoint"] + 1
    assert len(report["pods"]) == 2
    assert all(each["terminated"] for each in report["pods"])
    assert rented.state["pods"] == []
    again = {event["step"]: event["loss"] for event in _events(folder, "step", attempt=2)}
    for event in _events(folder, "step", attempt=1):
        assert event["loss"] == again.get(event["step"], event["loss"]), "the very same rows"


@pytest.mark.chaos
def test_a_run_that_loses_all_its_work_ends(rented: Rented, tmp_path: Path) -> None:
    """H23: noticed within seconds, and giving back what is gone is no error."""
    nowhere = {"network_volume": None, "checkpoint_store": None, "one_shot": False}
    run = rented.side.start(_task(tmp_path, rented, TINY, long=True, **nowhere))
    pod, _ = _training(rented, run)
    rented.set(kill_pod=pod["id"])
    report = rented.side.report(run, within=90)
    assert report["outcome"] == "preempted"
    assert "its work went with it" in report["reason"]
    assert rented.state["pods"] == []


@pytest.mark.chaos
def test_a_pod_ends_itself_when_nobody_else_does(rented: Rented, tmp_path: Path) -> None:
    """H16: RunPod has no timer any more, the control side is gone, the guard is left."""
    run = rented.side.start(_task(tmp_path, rented, TINY, max_hours=0.02, entry="sleep 600"))
    rented.side.wait("the pod", lambda: rented.pods_of(run))
    rented.side.wait("its container", lambda: rented.pods_of(run)[0]["boots"] == 1)
    rented.side.wait("the entry script", lambda: rented.side.children(run))
    try:
        assert rented.side.cli("down").returncode == 0
        rented.side.wait("its end", lambda: not rented.state["pods"], within=120)
        (pod,) = rented.pods_of(run)
        assert pod["reason"] == pod["id"], "it ended itself, with the key of the pod"
    finally:
        assert rented.side.cli("up").returncode == 0
    report = rented.side.report(run, within=90)
    assert report["state"] == "failed"


def _training(rented: Rented, run: str) -> tuple[dict[str, Any], Path]:
    """The run's pod and its folder there, once step 12 was trained."""
    rented.side.wait("the pod", lambda: rented.pods_of(run))
    (pod,) = rented.pods_of(run)
    folder = Path(pod["volume"]) / "axr" / run
    rented.side.wait("step 12", lambda: any(e["step"] == 12 for e in _events(folder, "step")))
    return pod, folder


def _events(folder: Path, kind: str, *, attempt: int = 1) -> list[dict[str, Any]]:
    """What the trainer said, as far as it is written."""
    path = folder / "events.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    found = [json.loads(line) for line in lines if line.endswith("}")]
    return [each for each in found if (each["kind"], each["attempt"]) == (kind, attempt)]
