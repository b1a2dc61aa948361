"""The trainer's part of a W&B run, without a trainer: what it opens, and the lines it sends."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pod import wandb_join
from pod.rundir import RunDir, read_json
from pod.wandb_join import Console, join, shown_lines
from runner.wandb_open import Opened

TOKEN = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz01234567"
JOINED = {"WANDB_RUN_ID": "axr-1", "WANDB_MODE": "shared"}


class Lines:
    """A W&B run that keeps the lines it is given."""

    url = "https://wandb.ai/me/toy/runs/axr-1"

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write_logs(self, text: str) -> None:
        """Keep them."""
        self.lines += text.split("\n")

    def finish(self, exit_code: int) -> None:
        """Note it as a line."""
        self.lines.append(f"finish {exit_code}")


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    """A run directory with a log, and a process that knows a secret."""
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path))
    return RunDir(tmp_path)


def test_without_a_run_of_wandb_nothing_is_opened(
    run_dir: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither without an id nor where it is disabled; without the package it is said."""
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert join(run_dir, 1, {}) is None
    assert join(run_dir, 1, {**JOINED, "WANDB_MODE": "disabled"}) is None
    assert join(run_dir, 1, JOINED) is None
    assert not run_dir.wandb.exists()


def test_it_joins_as_a_secondary_writer_that_never_ends_the_run(
    run_dir: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shared, under the id of the control side, its lines labelled by the attempt."""
    asked: list[dict[str, Any]] = []
    run = Lines()
    monkeypatch.setattr(
        wandb_join,
        "open_wandb",
        lambda settings: (asked.append(settings), Opened(run, "shared"))[1],
    )
    run_dir.trainer_log.write_text("=== attempt 2 ===\nloading\nlast wor")
    joined = join(run_dir, 2, JOINED)
    assert joined is not None
    joined.leave(1)
    joined.leave(0)
    wanted = {"mode": "shared", "run_id": "axr-1", "resume": "allow", "x_label": "attempt-2"}
    wanted |= {"x_primary": False, "x_update_finish_state": False, "console": "off"}
    assert asked[0].items() >= wanted.items()
    assert read_json(run_dir.wandb) == {"id": "axr-1", "url": run.url}
    assert run.lines[:3] == ["=== attempt 2 ===", "loading", "last wor"]


def test_only_whole_lines_of_this_attempt_are_sent_and_none_twice(run_dir: RunDir) -> None:
    """What the process said before it joined is in it."""
    run_dir.trainer_log.write_text("=== attempt 1 ===\nold\n=== attempt 2 ===\nbanner\nhal")
    run = Lines()
    console = Console(run_dir, run)
    console.look()
    assert run.lines == ["=== attempt 2 ===", "banner"]
    with run_dir.trainer_log.open("a") as log:
        log.write("f\nnext\n")
    console.look()
    console.look()
    assert run.lines[2:] == ["half", "next"]


def test_lines_are_shown_as_on_a_terminal_and_without_secrets(run_dir: RunDir) -> None:
    """Of a progress bar only its last state; a token never."""
    bar = b" 1%|x\r 2%|xx\r 3%|xxx\nlogin: " + TOKEN.encode() + b"\n\n" + b"y" * 9000
    assert shown_lines(bar) == [" 3%|xxx", "login: [secret HF_TOKEN]", "y" * 2000]


def test_a_wandb_that_fails_in_the_middle_costs_its_lines_and_no_more(run_dir: RunDir) -> None:
    """The thread ends; leaving is bounded."""

    def fail(text: str) -> None:
        raise ConnectionError("gone")

    run_dir.trainer_log.write_text("a line\n")
    console = Console(run_dir, SimpleNamespace(write_logs=fail))
    console.start()
    console.stop()
