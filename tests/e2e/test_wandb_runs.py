"""One W&B run for each run, offline: what its writers have put down, read back from their files."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pod import events, trainer
from pod.rundir import RunDir
from runner import wandb_writer
from runner.adapt import adapt
from runner.attempts import AttemptFacts
from runner.errors import Outcome
from runner.home import REPOSITORY, axolotl_environment
from runner.ladder import FIRST, NextAttempt, next_attempt
from runner.settings import ResumeSettings
from runner.taskfile import parse_task_file
from runner.wandb_feed import Feed
from runner.wandb_run import WandbRun, wandb_run
from tasks.trainer import Plan, follow_trainer, start_or_attach
from tests.e2e.conftest import SPIKE, Side, needs_axolotl
from tests.wandb_files import WandbFile, wandb_files

pytestmark = pytest.mark.e2e

RUN = "0bd1c5a4-6f4e-4d53-9c0b-2f6f5b1c9a77"
TOKEN = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz01234567"
WANDB_KEYS = "wandb_project: toy\nwandb_run_id: toy1\nwandb_mode: online\n"


def _task(folder: Path, *, tells: bool = False) -> str:
    """The spike example with W&B switched on and an id that was used before."""
    text = (REPOSITORY / SPIKE).read_text() + "\n" + WANDB_KEYS
    if tells:
        text += f"gradio_title: {TOKEN}\n"  # axolotl prints its configuration
    file = folder / "spike_wandb.yml"
    file.write_text(text)
    return str(file)


@dataclass
class Pod:
    """A run on a pod, with its W&B run as the control side has opened it."""

    folder: RunDir
    environment: dict[str, str]
    wandb: WandbRun

    def attempt(self, plan: Plan) -> AttemptFacts:
        """One attempt, as the flow on the pod makes it."""
        process = start_or_attach.fn(self.folder, plan, self.environment)
        return follow_trainer.fn(self.folder, plan, process, lambda new: None)


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    """A prepared run whose environment holds a secret and no key of W&B."""
    needs_axolotl()
    folder = RunDir(tmp_path / "run")
    folder.out.mkdir(parents=True)
    task = parse_task_file(Path(_task(tmp_path, tells=True)).read_text(), "spike_wandb.yml")
    adapted = adapt(task, run_dir=str(folder.path), source_dir=str(tmp_path), root=str(REPOSITORY))
    folder.task_file.write_text(task.text)
    folder.axolotl_file.write_text(adapted.text)
    found = wandb_run(task.axolotl, {}, run=RUN, task_file="spike_wandb.yml")
    assert found is not None
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    environment = {
        **clean,
        **found.environment(),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "HF_TOKEN": TOKEN,
        "AXR_AXOLOTL_ENV": str(axolotl_environment()),
        "AXR_REPOSITORY": str(REPOSITORY),
    }
    yield Pod(folder, environment, found)
    left = trainer.find(folder)
    if left is not None:
        os.killpg(left.pid, signal.SIGKILL)


def _told(files: list[WandbFile]) -> dict[tuple[int, int], float]:
    """(attempt, step) → loss, of each row."""
    rows = [row for file in files for row in file.rows if "train/loss" in row]
    return {(row["attempt"], row["train/global_step"]): row["train/loss"] for row in rows}


def test_nothing_is_lost_after_a_rollback_and_no_secret_is_told(pod: Pod) -> None:
    """H44, H45, H43: no key, an old id; both attempts in one process, each row kept and told apart.

    The control side's lines from before the trainer's start are in the same run.
    """
    feed = Feed(pod.folder.path)
    feed.open(pod.wandb, {"axolotl": {"seed": 42}})
    feed.say("line", text="INFO: looking for a pod")
    feed.say("end", exit_code=0, summary={})
    wandb_writer.main(pod.folder.path, lambda: False)

    first = pod.attempt(Plan.of(FIRST))
    assert first.outcome == "loss_spike", pod.folder.trainer_log.read_text()[-3000:]
    plan = next_attempt([first], ResumeSettings())
    assert isinstance(plan, NextAttempt)
    second = pod.attempt(Plan.of(plan))
    assert second.outcome == "completed", second.reason

    files = wandb_files(pod.folder.path)
    assert len(files) == 2, "one of the control side, one of the trainer's only process"
    assert {file.run_id for file in files} == {f"axr-{RUN}"}
    control, trained = files
    assert control.lines == ["INFO: looking for a pod"]
    assert (trained.project, trained.name) == ("toy", "toy1")
    steps = [event for event in events.read(pod.folder.events)[0] if event["kind"] == "step"]
    assert _told(files) == {(event["attempt"], event["step"]): event["loss"] for event in steps}
    assert {event["attempt"] for event in steps} == {1, 2}
    again = [row for row in trained.rows if "attempt_2/loss" in row]
    assert [row["attempt_2/step"] for row in again] == sorted(
        row["attempt_2/step"] for row in again
    )
    assert again[-1]["attempt_2/step"] == 40
    assert trained.axes["attempt_1/loss"] == "attempt_1/step"
    assert trained.axes["attempt_2/loss"] == "attempt_2/step"
    text = "\n".join(trained.lines)
    assert "=== attempt 1 ===" in text
    assert "=== attempt 2 ===" in text
    assert "[secret HF_TOKEN]" in text, "else this test could not fail"
    kept = [file.read_bytes() for file in (pod.folder.path / "wandb").rglob("*") if file.is_file()]
    assert not any(TOKEN.encode() in data for data in kept)
    configs = [path for name, path in trained.artifacts.items() if "axolotl_config" in name]
    assert configs, "axolotl uploads its configuration at each beginning"
    for config in configs:
        assert config.is_relative_to(pod.folder.path), "else it would go with the pod's home"
        assert "gradio_title: [secret HF_TOKEN]" in config.read_text().replace("'", "")
        assert "runner:" not in config.read_text()


def test_a_whole_run_is_one_story_from_before_its_pod(side: Side, tmp_path: Path) -> None:
    """H44: a local run with a loss spike; provisioning, both attempts, alerts and the end."""
    run = side.start(_task(tmp_path))
    report = side.report(run, within=300)
    assert report["state"] == "completed", report["reason"]
    folder = side.home.runs / run
    files = wandb_files(folder)
    assert {file.run_id for file in files} == {f"axr-{run}"}
    assert report["wandb"]["id"] == f"axr-{run}"
    assert report["wandb"]["url"] is None
    assert "wandb sync" in report["wandb"]["sync"]
    assert report["wandb"]["sync"] in (folder / "report.md").read_text()

    side.wait("the end in W&B", lambda: any(f.exit_code == 0 for f in wandb_files(folder)))
    control = [file for file in wandb_files(folder) if file.axes.keys() & {"runner/cost_usd"}]
    lines = [line for file in control for line in file.lines]
    pod = next(n for n, line in enumerate(lines) if "Pod local-" in line)
    begun = next(n for n, line in enumerate(lines) if "trainer started" in line)
    assert pod < begun
    assert any("prepare-1: " in line for line in lines), "what was said on the pod"
    seconds = {name for file in control for row in file.rows for name in row if "seconds" in name}
    wanted = ("check", "provision", "prepare", "train attempt 1", "train attempt 2", "publish")
    assert {f"runner/seconds/{phase}" for phase in (*wanted, "teardown")} <= seconds
    alerts = [title for file in control for title, _ in file.alerts]
    assert [title.partition(":")[0] for title in alerts] == ["spike", "resumed"]

    steps = side.events(run, "step")
    assert _told(files) == {(event["attempt"], event["step"]): event["loss"] for event in steps}
    text = "\n".join(line for file in files for line in file.lines)
    assert "=== attempt 1 ===" in text
    assert "=== attempt 2 ===" in text


def test_a_run_that_fails_before_its_trainer_says_why(side: Side, tmp_path: Path) -> None:
    """An entry script that fails: the W&B run is marked as failed, with the log."""
    text = (REPOSITORY / SPIKE).read_text().replace("runner:\n", "runner:\n  entry: exit 3\n")
    file = tmp_path / "early.yml"
    file.write_text(text + "\nwandb_project: toy\n")
    run = side.start(str(file))
    report = side.report(run)
    outcome: Outcome = "crash"
    assert report["outcome"] == outcome
    folder = side.home.runs / run
    side.wait("the end in W&B", lambda: any(f.exit_code == 1 for f in wandb_files(folder)))
    (found,) = wandb_files(folder)
    assert any("`entry` ended with code 3" in line for line in found.lines)
    assert found.summary["runner/outcome"] == "crash"
    assert [title.partition(":")[0] for title, _ in found.alerts] == ["crash"]
    assert json.loads((folder / "report.json").read_text())["wandb"]["id"] == found.run_id
