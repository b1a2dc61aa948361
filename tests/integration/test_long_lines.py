"""H58: one line of megabytes hides neither the error after it nor the whole message."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from pod.rundir import RunDir
from runner.attempts import from_message, to_message
from runner.errors import TrainingFailed
from runner.home import REPOSITORY
from runner.ladder import FIRST
from runner.notice import LENGTH, compose
from runner.report import Report
from runner.report_page import report_page
from tasks.setup import run_entry
from tasks.trainer import Plan, follow_trainer, start_or_attach

# What Prefect Cloud takes of one log line or message.
MOST = 25_000
TALKS = f"""#!{sys.executable}
import sys
bar = "\\r {{}}%|####      | {{}}/99999 [00:01<00:09, 9.9it/s]"
bar = "".join(bar.format(n % 100, n) for n in range(45_000))
print(bar, "y" * 100_000, sep="")
raise KeyError("labels")
"""


@pytest.fixture
def folder(tmp_path: Path) -> RunDir:
    """A run's folder on a pod whose axolotl prints 2 MB without a line's end, then fails."""
    binary = tmp_path / "venv" / "bin" / "axolotl"
    binary.parent.mkdir(parents=True)
    binary.write_text(TALKS)
    binary.chmod(0o755)
    made = RunDir(tmp_path / "run")
    made.out.mkdir(parents=True)
    made.task_file.write_text("base_model: x\n")
    made.axolotl_file.write_text("base_model: x\n")
    return made


def test_the_traceback_is_on_the_runs_page_in_the_report_and_in_the_notice(
    folder: RunDir, tmp_path: Path
) -> None:
    """The state message is small enough for every server; the whole log stays as a file."""
    environment = {
        **os.environ,
        "AXR_AXOLOTL_ENV": str(tmp_path / "venv"),
        "AXR_REPOSITORY": str(REPOSITORY),
    }
    process = start_or_attach.fn(folder, Plan.of(FIRST), environment)
    facts = follow_trainer.fn(folder, Plan.of(FIRST), process, lambda new: None)
    assert folder.trainer_log.stat().st_size > 2_000_000
    message = to_message(facts)
    assert len(message) < MOST
    assert "KeyError: 'labels'" in message.partition("\n")[0]
    known = from_message(message)
    assert known is not None
    log = "\n".join(known.tail)
    report = Report(run="3f0c6b1e", task="x.yml", state="failed", outcome="crash", reason="x")
    notice = compose("failed", run="3f0c6b1e", task="x.yml", log=folder.trainer_log.read_text())
    assert len(notice.title + notice.body) < LENGTH
    for shown in (report_page(report, [], links={}, log=log), notice.body):
        assert "Traceback (most recent call last)" in shown
        assert "KeyError: 'labels'" in shown


def test_the_entry_scripts_last_word_is_short(folder: RunDir) -> None:
    """A download's bar in the user's own script is no reason of megabytes."""
    with pytest.raises(TrainingFailed, match="KeyError: 'labels'") as failed:
        run_entry.fn(folder, str(folder.path.parent / "venv" / "bin" / "axolotl"))
    assert len(str(failed.value)) < 500
