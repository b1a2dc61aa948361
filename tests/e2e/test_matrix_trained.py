"""One task file with a matrix, a stub for axolotl: its runs, and the table that compares them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import make_side
from tests.e2e.pushes import stub_environment

pytestmark = [pytest.mark.e2e, pytest.mark.chaos]


def test_each_combination_is_trained_and_all_are_compared(empty_home: Path, tmp_path: Path) -> None:
    side = make_side(empty_home)
    side.environment["AXR_AXOLOTL_ENV"] = str(stub_environment(tmp_path / "stub"))
    file = tmp_path / "task.yml"
    file.write_text("base_model: x\nrunner:\n  matrix: {seed: [1, 2], lora_r: [8]}\n")
    assert side.cli("up").returncode == 0
    try:
        parent = side.start(str(file))
        report = side.report(parent)
        assert (report["outcome"], report["reason"]) == (
            "completed",
            "2 runs of its matrix were started",
        )
        question = {"flow_runs": {"tags": {"all_": [f"matrix:{parent}"]}}}
        runs = [str(run["id"]) for run in side.post("flow_runs/filter", question)]
        assert len(runs) == 2
        reports = [side.report(run, within=300) for run in runs]
        assert {each["state"] for each in reports} == {"completed"}
        folder = side.home.runs / parent
        side.wait("the table", lambda: "2 of 2 completed" in (folder / "comparison.md").read_text())
        assert json.loads((folder / "report.json").read_text())["pods"] == []
    finally:
        side.cli("down")
