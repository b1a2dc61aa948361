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
from tests.e2e.conftest import SPIKE, Side, make_side, needs_axolotl

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


def _task(folder: Path, rented: Rented, example: str, **changes: Any) -> str:
    """An example for RunPod; what git does not hold is named by where it lies on this machine."""
    keys = yaml.safe_load((REPOSITORY / example).read_text())
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
