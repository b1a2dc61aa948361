"""What a run's end leaves behind: files, an artifact, a notice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from prefect.states import Failed, Running

from pod.rundir import write_json
from runner.attempts import AttemptFacts, CheckpointFact, to_message
from runner.home import home
from runner.outbox import Outbox
from tasks.report import curve_so_far, report
from tasks.run import open_run
from tests.prefect_stand_in import Server, stand_in

BILL = {
    "cloud": "local",
    "created": "2026-01-01T00:00:00+00:00",
    "terminated": "2026-01-01T01:00:00+00:00",
    "price_per_hour": 0.5,
}
FACTS = AttemptFacts(
    1,
    "loss_spike",
    "loss rose 20x",
    first_step=1,
    last_step=23,
    onset_step=20,
    alarm_step=23,
    planned_steps=40,
    curve=tuple((step, 2.0 if step < 20 else 40.0) for step in range(1, 24)),
    evals=((10, 2.2), (20, "nan")),
    checkpoints=(CheckpointFact(10, "healthy"), CheckpointFact(20, "suspect")),
    tail=("Traceback", "LossSpike: rose"),
)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Server:
    """A server, an empty home, and somebody who is told."""
    monkeypatch.setenv("AXR_HOME", str(tmp_path))
    monkeypatch.setenv("AXR_NOTIFY_URLS", "json://127.0.0.1:1/x")
    return stand_in(monkeypatch)


def _run(server: Server, **facts: Any) -> str:
    run = server.add_run(Running(), **{"pod.p1": json.dumps(BILL), **facts})
    server.add_child(run, "train-1", Failed(name="LossSpike", message=to_message(FACTS)))
    return run


def test_an_end_leaves_report_page_picture_artifact_and_notice(server: Server) -> None:
    """The page beside report.json names its picture; the one in the UI carries it."""
    run = _run(server)
    write_json(home().run(run) / "story" / "state.json", {"url": "https://wandb.ai/me/p/runs/1"})
    path = report.fn(open_run(run), "loss_spike", "no rung is left", None)
    folder = home().run(run)
    assert json.loads(path.read_text())["cost_usd"] == 0.5
    assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")
    page = (folder / "report.md").read_text()
    assert "](curve.png)" in page
    assert f"axolotl-runner resume {run[:8]}" in page
    assert "from checkpoint 10, the last healthy" in page
    assert "[W&B](<https://wandb.ai/me/p/runs/1>)" in page
    (artifact,) = server.artifacts
    assert "](data:image/png;base64,iVBORw0KGgo" in artifact.data
    (letter,) = Outbox(home().outbox).letters()
    assert (letter.notice.kind, letter.picture) == ("failed", True)
    assert letter.curve == str(folder / "curve.png")
    assert "LossSpike: rose" in letter.notice.body


def test_nobody_is_told_twice(server: Server) -> None:
    """A revived parent, a hook and the sweep may all come by."""
    run = _run(server)
    report.fn(open_run(run), "loss_spike", "no rung is left", None)
    (letter,) = Outbox(home().outbox).letters()
    Outbox(home().outbox).remove(letter)
    report.fn(open_run(run), "loss_spike", "no rung is left", None)
    assert Outbox(home().outbox).letters() == []


def test_the_curve_so_far_is_drawn_from_what_the_attempts_said(server: Server) -> None:
    """None where nothing was trained yet."""
    assert curve_so_far(server.add_run(Running())) is None
    drawn = curve_so_far(_run(server))
    assert drawn is not None
    assert drawn.read_bytes().startswith(b"\x89PNG")


def test_a_disk_that_takes_no_notice_ends_no_run(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """A warning; the report is written."""
    (home().path / "outbox").write_text("in the way")
    assert report.fn(open_run(_run(server)), "loss_spike", "x", None).exists()
    assert "could not be written down" in caplog.text
