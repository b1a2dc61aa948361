"""A whole run on rented pods: the emulator's, which run the real start script and real axolotl."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import SPIKE, TINY
from tests.e2e.rented import KEY, SECRETS, Rented, rented_task, renting, steps

pytestmark = pytest.mark.e2e

ASKED = "a \"quoted\" 'value' with $HOME, `ticks` and\na second line"


@pytest.fixture(scope="module")
def rented() -> Iterator[Rented]:
    """The emulator and a control side, for all tests of this module."""
    with renting("runpod") as made:
        yield made


@pytest.fixture(scope="module")
def volume(rented: Rented) -> str:
    """A network volume, made by the account's owner; where the GPU of these tests is."""
    body = {"name": "e2e", "size": 10, "dataCenter": "EU-RO-1", "type": "STANDARD"}
    headers = {"Authorization": f"Bearer {KEY}"}
    made = httpx.post(f"{rented.url}/network-volumes", json=body, headers=headers, timeout=30)
    return str(made.raise_for_status().json()["id"])


def _task(folder: Path, volume: str, example: str, *, long: bool = False, **changes: Any) -> str:
    """An example whose checkpoints outlive its pod."""
    asked = {
        "cloud": "runpod",
        "gpu": "NVIDIA RTX A5000",
        "network_volume": volume,
        "checkpoint_store": "volume",
        "env": {"HF_HUB_OFFLINE": "1", "ASKED": ASKED},
    }
    return rented_task(folder, example, long=long, **{**asked, **changes})


def test_a_run_on_a_rented_pod_comes_back_from_its_spike(
    rented: Rented, volume: str, tmp_path: Path
) -> None:
    """One pod through the gateway, gone at the end, billed to the cent as the report says."""
    run = rented.side.start(_task(tmp_path, volume, SPIKE))
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


@pytest.mark.parametrize("teller", ["entry", "trainer"])
def test_nothing_that_a_failing_run_wrote_holds_a_secret(
    rented: Rented, volume: str, tmp_path: Path, teller: str
) -> None:
    """Keys, tokens and values of `env` stay where they are needed: on the pod. Its programs print
    them, and fail with them on their lips.
    """
    said = "told $HF_TOKEN and $GREETING, with $AXR_TOKEN"
    asked: dict[str, Any] = {"entry": f'echo "{said}"; exit 3'}
    if teller == "trainer":
        asked = {"plugins": ["tests.faults.tell_secrets.TellSecrets"]}
    env = {"HF_HUB_OFFLINE": "1", "ASKED": ASKED, "GREETING": None}
    run = rented.side.start(_task(tmp_path, volume, TINY, env=env, **asked))
    report = rented.side.report(run, within=150)
    assert (report["state"], report["outcome"]) == ("failed", "crash")
    assert (
        "told [secret HF_TOKEN] and [secret GREETING], with [secret AXR_TOKEN]"
        in (report["reason"])
    )
    (pod,) = rented.pods_of(run)
    assert pod["status"] == "TERMINATED"

    assert pod["env"]["GREETING"] == SECRETS["AXR_SECRET_GREETING"]
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
    told = json.dumps([logs, report, rented.side.get(f"flow_runs/{run}")["state"]])
    assert not [name for name, secret in secrets.items() if secret in told]
    assert "and a second line" not in told, "a value of `env`"


@pytest.mark.chaos
def test_a_container_that_is_started_again_goes_on(
    rented: Rented, volume: str, tmp_path: Path
) -> None:
    """H17: the same pod, no second trainer at once, and the run completes from a checkpoint."""
    run = rented.side.start(_task(tmp_path, volume, TINY, long=True))
    pod, _ = rented.training(run)
    rented.set(restart_container=pod["id"])
    report = rented.side.report(run, within=300)
    assert report["state"] == "completed", report["reason"]
    assert report["final_step"] == report["planned_steps"] == 250
    (pod,) = rented.pods_of(run)
    assert pod["boots"] == 2
    assert pod["status"] == "TERMINATED"


@pytest.mark.chaos
def test_a_run_goes_on_elsewhere_when_its_pod_is_taken(
    rented: Rented, volume: str, tmp_path: Path
) -> None:
    """H23: the network volume has the checkpoints, so another pod trains the rest."""
    run = rented.side.start(_task(tmp_path, volume, TINY, long=True))
    pod, folder = rented.training(run)
    rented.set(kill_pod=pod["id"])
    report = rented.side.report(run, within=200)
    assert report["state"] == "completed", report["reason"]
    lost, last = report["attempts"]
    assert (lost["outcome"], lost["pod"]) == ("preempted", pod["id"])
    assert last["pod"] != pod["id"]
    trained = max(event["step"] for event in steps(folder))
    assert trained - last["from_checkpoint"] <= 10, "at most one save interval is lost"
    assert last["first_step"] == last["from_checkpoint"] + 1
    assert len(report["pods"]) == 2
    assert all(each["terminated"] for each in report["pods"])
    assert rented.state["pods"] == []
    again = {event["step"]: event["loss"] for event in steps(folder, 2)}
    for event in steps(folder):
        assert event["loss"] == again.get(event["step"], event["loss"]), "the very same rows"


@pytest.mark.chaos
def test_a_run_that_loses_all_its_work_ends(rented: Rented, volume: str, tmp_path: Path) -> None:
    """H23: noticed within seconds, and giving back what is gone is no error."""
    nowhere = {"network_volume": None, "checkpoint_store": None, "one_shot": False}
    run = rented.side.start(_task(tmp_path, volume, TINY, long=True, **nowhere))
    pod, _ = rented.training(run)
    rented.set(kill_pod=pod["id"])
    report = rented.side.report(run, within=90)
    assert report["outcome"] == "preempted"
    assert "its work went with it" in report["reason"]
    assert rented.state["pods"] == []


@pytest.mark.chaos
def test_a_pod_ends_itself_when_nobody_else_does(
    rented: Rented, volume: str, tmp_path: Path
) -> None:
    """H16: RunPod has no timer any more, the control side is gone, the guard is left."""
    run = rented.side.start(_task(tmp_path, volume, TINY, max_hours=0.02, entry="sleep 600"))
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
