from pathlib import Path

import httpx
import pytest
from prefect.states import Running

from pod.pulse import Pulse
from pod.rundir import RunDir, write_json
from runner.progress import TrainingProgress
from tasks.phase_label import PhaseLabel
from tests.prefect_stand_in import Server, stand_in


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """Keeps the labels."""
    return stand_in(monkeypatch)


def _label(folder: RunDir, flow_run: str, clock: list[float]) -> PhaseLabel:
    progress = TrainingProgress(2)
    return PhaseLabel(folder, flow_run, lambda events: None, progress, clock=lambda: clock[0])


def _beat(folder: RunDir, t: float, phase: str) -> None:
    write_json(folder.pulse, Pulse(t, 3, phase)._asdict())  # type: ignore[arg-type]


def test_the_phase_is_left_at_most_every_15_seconds(tmp_path: Path, server: Server) -> None:
    """The newest one wins; an old sign of life is not written again."""
    child = server.add_child("run", "train-1", Running())
    folder, clock = RunDir(tmp_path), [0.0]
    label = _label(folder, child, clock)
    label([])
    assert "phase" not in server.facts(child)
    _beat(folder, 100, "loading")
    label([])
    _beat(folder, 101, "training")
    label([])
    assert server.facts(child) == {"phase": "loading", "phase_at": "100", "step": "3"}
    clock[0] = 15.0
    label([])
    assert server.facts(child) == {"phase": "training", "phase_at": "101", "step": "3"}


def test_a_server_that_is_away_does_not_stop_the_follower(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is written when the server is back."""
    child = server.add_child("run", "train-1", Running())
    folder, clock = RunDir(tmp_path), [0.0]
    label = _label(folder, child, clock)
    _beat(folder, 100, "saving")

    def away(*args: object) -> None:
        raise httpx.ConnectError("refused")

    with monkeypatch.context() as broken:
        broken.setattr(server, "update_flow_run_labels", away)
        label([])
    clock[0] = 15.0
    label([])
    assert server.facts(child)["phase"] == "saving"


def test_a_resumed_trainer_that_passes_over_rows_is_named_so(
    tmp_path: Path, server: Server
) -> None:
    """H38: after the model is loaded (`armed`), loading at a step is fast-forwarding. The table of
    pods gets the plan and the time left with it.
    """
    child = server.add_child("run", "train-2", Running())
    folder, clock = RunDir(tmp_path), [0.0]
    label = _label(folder, child, clock)
    _beat(folder, 100, "loading")
    label([])
    assert server.facts(child)["phase"] == "loading"
    label.progress.take({"kind": "armed", "t": 0.0, "step": 0, "planned_steps": 40})
    for step in (4, 5):
        label.progress.take({"kind": "step", "t": step * 2.0, "step": step, "loss": 1.0})
    _beat(folder, 101, "loading")
    clock[0] = 15.0
    label([])
    assert server.facts(child) == {
        "phase": "forwarding",
        "phase_at": "101",
        "step": "3",
        "planned_steps": "40",
        "seconds_left": "70",
    }
