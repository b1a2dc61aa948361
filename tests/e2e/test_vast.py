"""A whole run on Vast's interruptible machines: the emulator's market, and real axolotl."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import SPIKE
from tests.e2e.rented import Rented, rented_task, renting

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def rented() -> Iterator[Rented]:
    """The market and a control side, for all tests of this module."""
    with renting("vast") as made:
        made.set(gaps=False)
        yield made


def test_a_run_on_a_rented_machine_comes_back_from_its_spike(
    rented: Rented, tmp_path: Path
) -> None:
    """One instance, by a bid, gone at the end."""
    file = rented_task(
        tmp_path,
        SPIKE,
        cloud="vast",
        gpu="RTX 4090",
        spot=True,
        checkpoint_store="hf://me/checkpoints",
    )
    run = rented.side.start(file)
    report = rented.side.report(run, within=200)
    assert report["state"] == "completed", report["reason"]
    assert [each["outcome"] for each in report["attempts"]] == ["loss_spike", "completed"]
    assert rented.state["pods"] == []
    assert rented.state["violations"] == []
    (pod,) = rented.pods_of(run)
    assert pod["is_bid"]
