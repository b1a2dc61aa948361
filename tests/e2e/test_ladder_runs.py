"""The ladder through real Prefect and real axolotl: a rung that helps, and one that does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from runner.home import REPOSITORY
from tests.e2e.conftest import TINY, Side

pytestmark = [pytest.mark.e2e, pytest.mark.chaos]

ALWAYS = "tests.faults.weights_always.WeightsAlways"
FULL = "tests.faults.memory_full.MemoryFull"


def _task(folder: Path, fault: str, *, step: int, **resume: Any) -> str:
    """The tiny task file with a fault."""
    settings = yaml.safe_load((REPOSITORY / TINY).read_text())
    settings |= {"plugins": [fault], "fault_step": step}
    if resume:
        settings["runner"]["resume"] = resume
    file = folder / "faulty.yml"
    file.write_text(yaml.safe_dump(settings, sort_keys=False))
    return str(file)


def _names(side: Side, run: str) -> list[str]:
    """The names of the subflows of a run, as the UI shows them."""
    parent = {"parent_flow_run_id": {"any_": [run]}}
    found = side.post("flow_runs/filter", {"flow_runs": parent, "limit": 50})
    return sorted(child["name"] for child in found if child["name"].startswith("resume"))


def test_a_trouble_that_comes_back_is_skipped(side: Side, tmp_path: Path) -> None:
    """A replay meets the fault again; passing its steps over completes, in one trainer process."""
    run = side.start(_task(tmp_path, ALWAYS, step=24))
    report = side.report(run, within=400)
    assert report["state"] == "completed", report["reason"]
    first, second, third = report["attempts"]
    assert [first["outcome"], second["outcome"]] == ["loss_spike", "loss_spike"]
    assert [first["rung"], second["rung"]] == [None, {"kind": "replay"}]
    skipped = third["rung"]
    assert skipped["kind"] == "skip"
    assert skipped["first"] <= 24 < skipped["last"]
    assert report["final_step"] == report["planned_steps"] == 40

    trained = [event["step"] for event in side.events(run, "step") if event["attempt"] == 3]
    window = range(skipped["first"], skipped["last"] + 1)
    begin = third["from_checkpoint"] + 1
    assert trained == [step for step in range(begin, 41) if step not in window]
    losses = [event["loss"] for event in side.events(run, "step") if event["attempt"] == 3]
    assert max(losses) < 4, "it went on from healthy weights"

    assert len(side.events(run, "rewound")) == 2, "the same process went back, twice"
    decided = [e for e in side.events(run, "decision") if e["cmd"] == "resume"]
    assert [(e["attempt"], e["rung"]["kind"]) for e in decided] == [(2, "replay"), (3, "skip")]
    assert all(e["why"] for e in decided)
    words = f"skipping steps {skipped['first']}-{skipped['last']}"
    assert _names(side, run) == [
        f"resume-2: from checkpoint {second['from_checkpoint']}: replay",
        f"resume-3: from checkpoint {third['from_checkpoint']}: {words}",
    ]
    page = (side.home.runs / run / "report.md").read_text()
    assert words in page
    assert "## What was in the batch" in page


def test_an_exhausted_ladder_ends_with_the_last_healthy_checkpoint(
    side: Side, tmp_path: Path
) -> None:
    """Nothing is published, what is ruined is set aside, the reason says where the rest lies."""
    run = side.start(_task(tmp_path, ALWAYS, step=24, ladder=["replay"]))
    report = side.report(run, within=400)
    assert side.state(run) == "LossSpike"
    assert report["outcome"] == "loss_spike"
    assert len(report["attempts"]) == 2
    assert "no rung of the ladder helped (tried: replay)" in report["reason"]
    named = report["reason"].rpartition(" ")[2]
    assert named.startswith(f"runs/{run}/out/checkpoint-")
    assert (side.home.path / named / "trainer_state.json").exists()
    left = [int(path.name.split("-")[1]) for path in (side.home.runs / run / "out").glob("ch*-*")]
    assert max(left) < report["attempts"][1]["onset_step"]
    assert report["model_dir"] is None
    assert not report["published"]


def test_out_of_memory_goes_on_with_half_the_micro_batch(side: Side, tmp_path: Path) -> None:
    """8 rows at once become 4 twice: the same rows in each step, the same number of steps."""
    run = side.start(_task(tmp_path, FULL, step=12))
    report = side.report(run, within=400)
    assert report["state"] == "completed", report["reason"]
    first, second = report["attempts"]
    assert first["outcome"] == "out_of_memory"
    assert second["rung"] == {
        "kind": "smaller_batch",
        "micro_batch_size": 4,
        "gradient_accumulation_steps": 2,
    }
    assert (second["from_checkpoint"], second["first_step"], second["last_step"]) == (10, 11, 40)
    assert report["final_step"] == report["planned_steps"] == 40
    given = yaml.safe_load((side.home.runs / run / "axolotl.yml").read_text())
    assert (given["micro_batch_size"], given["gradient_accumulation_steps"]) == (4, 2)
    # Step 11 was trained with both: axolotl averages micro batches, not tokens.
    by_attempt = {e["attempt"]: e["loss"] for e in side.events(run, "step") if e["step"] == 11}
    assert by_attempt[2] == pytest.approx(by_attempt[1], rel=0.02)
