"""A whole run on Vast's interruptible machines: the emulator's market, and real axolotl."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import SPIKE, TINY
from tests.e2e.rented import KEY, Rented, emulated, rented_task, renting, steps, volume_of

pytestmark = [pytest.mark.e2e, pytest.mark.chaos]


@pytest.fixture(scope="module")
def hub() -> Iterator[str]:
    """The hub that holds the checkpoint store."""
    with emulated("hub") as url:
        yield url


@pytest.fixture(scope="module")
def runpod() -> Iterator[str]:
    """Another cloud, for the run that finds the first one full."""
    with emulated("runpod", "--key", KEY) as url:
        yield url


@pytest.fixture(scope="module")
def rented(runpod: str) -> Iterator[Rented]:
    """The market and a control side, for all tests of this module."""
    second = {"AXR_RUNPOD_URL": runpod, "RUNPOD_API_KEY": KEY}
    with renting("vast", HF_TOKEN="hf_write", **second) as made:
        made.set(gaps=False)
        yield made


def test_a_run_on_a_rented_machine_comes_back_from_its_spike(
    rented: Rented, hub: str, tmp_path: Path
) -> None:
    """One instance, by a bid, gone at the end."""
    file = rented_task(
        tmp_path,
        SPIKE,
        cloud="vast",
        gpu="RTX 4090",
        spot=True,
        checkpoint_store="hf://me/checkpoints",
        env={"HF_HUB_OFFLINE": "1", "HF_ENDPOINT": hub},
    )
    run = rented.side.start(file)
    report = rented.side.report(run, within=200)
    assert report["state"] == "completed", report["reason"]
    assert [each["outcome"] for each in report["attempts"]] == ["loss_spike", "completed"]
    assert rented.state["pods"] == []
    assert rented.state["violations"] == []
    (pod,) = rented.pods_of(run)
    assert pod["is_bid"]


def test_a_run_that_is_outbid_goes_on_elsewhere(rented: Rented, hub: str, tmp_path: Path) -> None:
    """The old instance is destroyed first; at most one save interval is lost, and no row."""
    rented.set(keep_folders=True)
    file = rented_task(
        tmp_path,
        TINY,
        long=True,
        save_steps=50,
        cloud="vast",
        gpu="RTX 4090",
        spot=True,
        checkpoint_store="hf://me/checkpoints",
        env={"HF_HUB_OFFLINE": "1", "HF_ENDPOINT": hub},
    )
    run = rented.side.start(file)
    pod, folder = rented.training(run, step=145)
    rented.set(outbid=pod["id"])
    report = rented.side.report(run, within=250)
    assert report["state"] == "completed", report["reason"]
    lost, last = report["attempts"]
    assert (lost["outcome"], last["outcome"]) == ("preempted", "completed")
    assert last["pod"] != lost["pod"]
    trained = {event["step"]: event["loss"] for event in steps(folder)}
    assert max(trained) - last["from_checkpoint"] <= 50
    _, second = sorted(rented.pods_of(run), key=lambda each: float(each["start_date"] or 0))
    again = {e["step"]: e["loss"] for e in steps(volume_of(second) / "axr" / run, attempt=2)}
    assert min(again) == last["from_checkpoint"] + 1
    assert max(again) == report["planned_steps"]
    assert {step: trained[step] for step in again if step in trained} == {
        step: loss for step, loss in again.items() if step in trained
    }
    assert rented.state["pods"] == []


def test_the_next_cloud_is_asked_when_the_first_ones_are_full(
    rented: Rented, runpod: str, hub: str, tmp_path: Path
) -> None:
    """Down to this machine, in one run; nothing is left where it was refused."""
    other = Rented(rented.side, runpod)
    other.set(create_400_capacity=True)
    rented.set(snatch=True)
    file = rented_task(
        tmp_path,
        TINY,
        cloud=["runpod", "vast", "local"],
        gpu="NVIDIA GeForce RTX 4090",
        checkpoint_store="hf://me/checkpoints",
        env={"HF_HUB_OFFLINE": "1", "HF_ENDPOINT": hub},
    )
    run = rented.side.start(file)
    report = rented.side.report(run, within=200)
    assert report["state"] == "completed", report["reason"]
    assert [pod["cloud"] for pod in report["pods"]] == ["local"]
    assert other.state["pods"] == rented.state["pods"] == []
    assert [call for call in other.state["requests"] if call["method"] == "POST"]


def test_a_machine_lost_with_the_trained_model_is_made_good(
    rented: Rented, hub: str, tmp_path: Path
) -> None:
    """Outbid after the last step and before the model was published: the end is trained again."""
    rented.set(keep_folders=True, snatch=False)
    file = rented_task(
        tmp_path,
        TINY,
        cloud="vast",
        gpu="RTX 4090",
        spot=True,
        checkpoint_store="hf://me/trained",
        env={"HF_HUB_OFFLINE": "1", "HF_ENDPOINT": hub},
    )
    run = rented.side.start(file)
    pod, folder = rented.training(run, step=1)
    told = folder / "events.jsonl"
    rented.side.wait("the end of the training", lambda: '"kind": "end"' in told.read_text())
    rented.set(outbid=pod["id"])
    report = rented.side.report(run, within=200)
    assert report["state"] == "completed", report["reason"]
    lost, last = report["attempts"]
    assert (lost["outcome"], last["outcome"]) == ("preempted", "completed")
    assert last["pod"] != lost["pod"]
    assert last["last_step"] == report["planned_steps"]
    assert rented.state["pods"] == []
