"""A hang through real Prefect and real axolotl: noticed, looked into, ended and resumed."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from runner.home import REPOSITORY
from tests.e2e.conftest import TINY, Side

pytestmark = [pytest.mark.e2e, pytest.mark.chaos]

HANGS = "tests.faults.hang_once.HangOnce"


def _task(folder: Path, *, step: int) -> str:
    """The tiny task file with a step that never ends, logged every tenth step only."""
    settings = yaml.safe_load((REPOSITORY / TINY).read_text())
    settings |= {"plugins": [HANGS], "fault_step": step, "logging_steps": 10}
    settings["runner"]["resume"] = {"hang_minutes": 0.2}
    file = folder / "hangs.yml"
    file.write_text(yaml.safe_dump(settings, sort_keys=False))
    return str(file)


def test_a_run_that_hangs_is_looked_into_and_goes_on(side: Side, tmp_path: Path) -> None:
    """From its last checkpoint, with the stacks in the log and what happened in the report."""
    run = side.start(_task(tmp_path, step=24))
    report = side.report(run, within=400)
    assert report["state"] == "completed", report["reason"]
    first, second = report["attempts"]
    assert first["outcome"] == "hang"
    assert first["last_step"] == 23, "of the pulse: the log has step 20"
    assert second["outcome"] == "completed"
    assert second["from_checkpoint"] == 20
    assert report["final_step"] == report["planned_steps"] == 40

    (hang,) = side.events(run, "hang")
    assert (hang["attempt"], hang["step"], hang["phase"]) == (1, 23, "training")
    assert hang["seconds"] >= 12
    assert hang["reason"].startswith("no step for ")
    assert hang["reason"].endswith(" at step 23 while training")
    log = (side.home.runs / run / "trainer.log").read_text(errors="replace")
    assert "=== stacks of process" in log
    assert "stands at " in log
    assert log.count("stand_still") >= 2
    (decided,) = (e for e in side.events(run, "decision") if e["cmd"] == "resume")
    assert decided["why"] == hang["reason"]
    (failed,) = (child for child in side.children(run) if child["state"]["name"] == "Hang")
    assert "stand_still" in failed["state"]["message"], "where it stood is in the state's tail"
