"""What a run is told before anything is rented: its file, and the accounts it is billed to."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from blocks.account import Balance
from runner.checks.gathering import check_tasks
from runner.errors import KeyRefused
from runner.home import REPOSITORY
from runner.taskfile import TaskFileError, parse_task_file
from tasks import check
from tasks.run import Order, Run


class Account:
    """An account with so much left."""

    def __init__(self, answer: Balance | Exception) -> None:
        self.answer = answer

    def balance(self) -> Balance:
        """What is left."""
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Any:
    """Asks all accounts and returns what was said."""
    monkeypatch.setattr(check, "get_run_logger", lambda: logging.getLogger("check"))
    caplog.set_level(logging.INFO, "check")

    def ask(**accounts: Account | None) -> list[str]:
        monkeypatch.setattr(check, "ACCOUNTS", {n: lambda a=a: a for n, a in accounts.items()})
        order = Order(parse_task_file("base_model: x\n", "x.yml"), (*accounts, "local"))
        caplog.clear()
        for cloud in order.clouds:
            check._say_balance(cloud, order)
        return [record.getMessage() for record in caplog.records]

    return ask


def test_each_account_is_told_alike(said: Any) -> None:
    """What is left, and a warning where it won't last an hour; nothing of a cloud without one."""
    poor, rich = Account(Balance(7.0, 2.5)), Account(Balance(100.0, 2.5))
    assert said(runpod=rich, vast=poor) == [
        "runpod account: $100.00 left",
        "vast account: $7.00 left",
        "vast account: $7.00 left, $2.50 per hour are spent already: it may not last an hour at "
        "max_price_per_hour: 5",
    ]
    assert said(runpod=None, vast=None) == []


def test_an_account_that_says_nothing_stops_no_run(said: Any) -> None:
    """The next cloud of the list may do."""
    assert said(vast=Account(KeyRefused("Vast refuses the API key"))) == [
        "Vast refuses the API key"
    ]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, said: Any, tmp_path: Path) -> Run:
    """A run of this repository, in whose environment nothing is set."""
    monkeypatch.setenv("AXR_AXOLOTL_ENV", str(tmp_path / "none"))
    monkeypatch.setenv("AXR_GATEWAY_URL", "https://runner.example.com")
    for name in ("HF_TOKEN", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(check, "granted", lambda names: {})
    return Run("a-run", "configs/examples/tiny.yml", None, datetime.now(UTC))


def _order(run: Run, added: str = "", cloud: str = "local") -> Order:
    text = (REPOSITORY / run.task_file).read_text()
    return Order(parse_task_file(text + added, run.task_file), (cloud,))


def test_a_run_is_checked_as_the_command_checks_its_file(run: Run) -> None:
    """The same findings, a stop as one error with all of them; nothing was rented by then."""
    wrong = "val_set_size: 0\nwandb_project: toy\nlora_model_dir: ./nowhere\n"
    order = _order(run, wrong)
    with pytest.raises(TaskFileError) as stopped:
        check.look(run, order)
    (found,) = check_tasks([(order.task, check.ground_of(run, order))])
    stops = [each for each in found.findings if each.level == "stop"]
    assert list(stopped.value.findings) == stops
    assert {each.key for each in stops} == {"eval_steps", "lora_model_dir"}


def test_warnings_of_a_run_stand_in_its_log(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """With file, line and column; what could not be looked at too."""
    check.look(run, _order(run, "save_step: 5\n"))
    assert "save_steps?" in caplog.text
    assert f"{run.task_file}:" in caplog.text


def test_a_rented_run_needs_its_files_in_git(run: Run) -> None:
    """The example's model is made by `make setup` and ignored: no pod of others would have it."""
    rented = _order(run, "hub_model_id: me/x\n", "runpod")
    ground = check.ground_of(run, rented)
    assert ground.carried
    assert ground.found("configs/examples/tiny.yml") == "configs/examples/tiny.yml"
    assert ground.found("configs/examples/tiny/model") is None


def test_the_files_of_a_pushed_run_are_those_of_its_commit(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever lies on this machine by now."""
    monkeypatch.setattr(check, "pushed_paths", lambda *asked: ["configs/a/rows.jsonl"])
    pushed = replace(run, repository="me/configs", commit="ab" * 20, task_file="configs/a/t.yml")
    ground = check.ground_of(pushed, _order(run))
    assert ground.found("rows.jsonl") == "configs/a/rows.jsonl"
    assert ground.near("row.jsonl") == ["rows.jsonl"]
    assert ground.found("configs/examples/tiny.yml") is None
