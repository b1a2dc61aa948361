"""What a failing run says holds no secret, though its programs print them: real processes and a
real flow run, without a cloud.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pod import events
from pod.rundir import RunDir
from pod.store.state import snapshot
from runner.attempts import AttemptFacts, from_message, to_message
from runner.errors import TrainingFailed
from runner.home import REPOSITORY
from runner.ladder import FIRST
from runner.notice import compose
from runner.report import Report, Seconds, write_report
from runner.report_page import report_page
from tasks.facts import read_facts
from tasks.setup import run_entry
from tasks.trainer import Plan, follow_trainer, start_or_attach

SECRETS = {
    "HF_TOKEN": "hf_AbCdEfGhIjKlMnOpQrStUvWxYz01234567",
    "WANDB_API_KEY": "0123456789abcdef0123456789abcdef01234567",
    "DB_PASSWORD": "over the hills & far away",
    "GIVEN": "a-secret-by-name-only",
    "AXR_SECRETS": "GIVEN",
}
PRINTS = 'echo "login: $HF_TOKEN $WANDB_API_KEY ($GIVEN)" >&2; echo "db $DB_PASSWORD"'
FAILS = 'echo "RuntimeError: no access with $HF_TOKEN as $GIVEN"'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    """A run's folder on a pod that has secrets and an axolotl that tells them."""
    binary = tmp_path / "venv" / "bin" / "axolotl"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\n{PRINTS}\n{FAILS}\nexit 1\n")
    binary.chmod(0o755)
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    made = RunDir(tmp_path / "run")
    made.out.mkdir(parents=True)
    made.task_file.write_text("base_model: x\n")
    made.axolotl_file.write_text("base_model: x\n")
    return made


def _told(text: str) -> list[str]:
    return [name for name, value in SECRETS.items() if name != "AXR_SECRETS" and value in text]


def test_what_the_entry_script_prints(folder: RunDir) -> None:
    """Its last line is the reason of the run's end; its output stays in entry.log, cleaned."""
    with pytest.raises(TrainingFailed) as failed:
        run_entry.fn(folder, f"{PRINTS}; {FAILS}; exit 3")
    facts = AttemptFacts(1, "crash", str(failed.value))
    assert "no access with [secret HF_TOKEN] as [secret GIVEN]" in to_message(facts)
    assert not _told(to_message(facts))
    log = (folder.path / "entry.log").read_text()
    assert "db [secret DB_PASSWORD]" in log
    assert not _told(log)


def test_what_the_trainer_prints(folder: RunDir, tmp_path: Path) -> None:
    """The tail of its log goes into a state, the report, its page and a notice."""
    environment = {
        **os.environ,
        "AXR_AXOLOTL_ENV": str(tmp_path / "venv"),
        "AXR_REPOSITORY": str(REPOSITORY),
    }
    plan = Plan.of(FIRST)
    process = start_or_attach.fn(folder, plan, environment)
    facts = follow_trainer.fn(folder, plan, process, lambda new: None)
    assert _told(folder.trainer_log.read_text()), "else this test could not fail"

    message = to_message(facts)
    assert "no access with [secret HF_TOKEN] as [secret GIVEN]" in message
    assert not _told(message)
    known = from_message(message)
    assert known is not None
    log = "\n".join(known.tail)
    assert "db [secret DB_PASSWORD]" in log

    raw = folder.trainer_log.read_text()
    notice = compose("failed", run="r", task="t", reason=raw, facts={"note": raw}, log=raw)
    assert not _told(notice.title + notice.body)
    report = Report(
        run="0bd1c5a4-6f4e-4d53-9c0b-2f6f5b1c9a77", task="t.yml", commit=None, state="failed",
        outcome="crash", reason=raw, attempts=(), final_step=None, planned_steps=None,
        final_loss=None, model_dir=None, published=False, pods=(), cost_usd=0.0,
        seconds=Seconds(total=1.0),
    )  # fmt: skip
    assert not _told(write_report(report, tmp_path).read_text())
    assert not _told(report_page(report, [], links={}, log=log))


def test_what_is_cut_holds_no_half_of_a_secret(folder: RunDir) -> None:
    """A reason is one line of 300 characters, and a token may stand where it ends."""
    message = f"{'x' * 270} {SECRETS['HF_TOKEN']}"
    events.append(folder.events, "error", 1, 3, error="HubError", message=message, cuda_oom=False)
    facts = read_facts(folder, Plan.of(FIRST), exit_code=1)
    assert facts.reason.startswith("HubError: xxx")
    assert SECRETS["HF_TOKEN"][:12] not in to_message(facts)


def test_what_goes_to_the_store(folder: RunDir, tmp_path: Path) -> None:
    """The events of a run lie beside its checkpoints, maybe on a hub: they leave clean."""
    for step in range(3):
        events.append(folder.events, "step", 1, step, loss=2.0)
    events.append(folder.events, "error", 1, 3, message=f"401\nwith {SECRETS['HF_TOKEN']}", t=5.0)
    found = snapshot(folder, tmp_path / "snapshot")
    assert not _told(found["events.jsonl"].read_text())
    every, _ = events.read(found["events.jsonl"])
    assert [event["kind"] for event in every] == ["step", "step", "step", "error"]
    assert every[-1]["message"] == "401\nwith [secret HF_TOKEN]"


FLOW = """
import os
from prefect import flow, task
import flows

@task
def step():
    print("printing", os.environ["DB_PASSWORD"])
    raise ValueError("task: " + os.environ["DB_PASSWORD"])

@flow(log_prints=True)
def fails():
    state = step(return_state=True)
    print("task state:", state.message)
    raise RuntimeError("flow: " + os.environ["DB_PASSWORD"])

state = fails(return_state=True)
print("flow state:", state.message)

from prefect.client.orchestration import get_client
from prefect.logging.handlers import APILogWorker
APILogWorker.drain_all()
with get_client(sync_client=True) as client:
    print("server:", client.read_flow_run(state.state_details.flow_run_id).state.message)
    for line in client.read_logs():
        print("API log:", line.message)
raise SystemError("last words: " + os.environ["DB_PASSWORD"])
"""


def test_what_prefect_makes_of_errors_that_nobody_caught(tmp_path: Path) -> None:
    """In a real flow run: its log, its state and its task's, and the last words of its process."""
    done = subprocess.run(
        [sys.executable, "-c", FLOW],
        cwd=REPOSITORY,
        env={
            **os.environ,
            **SECRETS,
            "PREFECT_HOME": str(tmp_path),
            "PREFECT_SERVER_EPHEMERAL_ENABLED": "true",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        },
        capture_output=True,
        text=True,
    )
    said = done.stdout + done.stderr
    for words in (
        "API log: printing",
        "ValueError: task:",
        "server: Flow run encountered an exception: RuntimeError: flow:",
        "last words:",
    ):
        assert f"{words} [secret DB_PASSWORD]" in said, said[-3000:]
    assert not _told(said)
