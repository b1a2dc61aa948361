"""A task file with a matrix starts a run for each combination, once, and compares them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from prefect.states import Completed, Running

from runner.errors import ConfigError, HandedOn
from tasks.matrix import show_comparison_of, spread
from tasks.run import make_order, open_order, open_run
from tests.prefect_stand_in import Server, stand_in

TEXT = (
    "base_model: x\nlearning_rate: 1\nrunner:\n  cloud: local\n"
    "  matrix: {{learning_rate: {values}}}\n"
)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Server:
    monkeypatch.setenv("AXR_HOME", str(tmp_path))
    return stand_in(monkeypatch)


def _spread(server: Server, run_id: str) -> None:
    with pytest.raises(HandedOn, match="2 runs"):
        spread.fn(open_run(run_id), open_order(run_id))


def test_each_combination_is_one_run_however_often_it_is_asked(server: Server) -> None:
    parent = server.add_run(Running(), content=TEXT.format(values="[0.1, 0.2]"))
    _spread(server, parent)
    _spread(server, parent)
    made = [run for run in server.runs.values() if f"matrix:{parent}" in run.tags]
    assert [run.parameters["task_file"] for run in made] == [
        "x.yml#1-learning_rate=0.1",
        "x.yml#2-learning_rate=0.2",
    ]
    orders = [make_order(run.parameters["task_file"], run.parameters["content"]) for run in made]
    assert [order.task.axolotl["learning_rate"] for order in orders] == [0.1, 0.2]
    assert [order.settings.matrix for order in orders] == [{}, {}]


def test_nothing_starts_when_one_combination_is_wrong(server: Server) -> None:
    text = TEXT.format(values="[0.1]").replace("learning_rate: [", "runner.cloud: [local, ")
    parent = server.add_run(Running(), content=text.replace("0.1", "moon"))
    with pytest.raises(ConfigError, match="moon"):
        spread.fn(open_run(parent), open_order(parent))
    assert len(server.runs) == 1


def test_a_file_without_a_matrix_is_left_alone(server: Server) -> None:
    parent = server.add_run(Running())
    spread.fn(open_run(parent), open_order(parent))
    assert len(server.runs) == 1


def test_the_table_follows_the_reports(server: Server, tmp_path: Path) -> None:
    parent = server.add_run(Running(), content=TEXT.format(values="[0.1, 0.2]"))
    _spread(server, parent)
    first, second = (run for run in server.runs.values() if f"matrix:{parent}" in run.tags)
    for run, loss in ((first, 1.5), (second, 0.75)):
        run.state = Completed()
        facts = {"final_loss": loss, "final_step": 9, "planned_steps": 9, "cost_usd": 0.5,
                 "seconds": {"total": 61.0}}  # fmt: skip
        folder = tmp_path / "runs" / str(run.id)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "report.json").write_text(json.dumps(facts))
        show_comparison_of(open_run(str(run.id)))
    page = (tmp_path / "runs" / parent / "comparison.md").read_text()
    assert "| 1 | 0.1 | Completed | 1.5000 | 9/9 | 0:01:01 | $0.50 |" in page
    assert "| 2 | 0.2 | Completed | **0.7500** | 9/9 | 0:01:01 | $0.50 |" in page
    assert "2 of 2 completed · $1.00 so far" in page
    assert server.artifacts[-1].key == f"matrix-{parent}"
    assert server.artifacts[-1].data == page
