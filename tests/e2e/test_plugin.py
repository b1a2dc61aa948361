"""The plugin inside real axolotl trainings of the tiny model, started and judged as on a pod."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from pod import events, ledger, trainer, verdict
from pod.events import Event
from pod.rundir import RunDir, write_json

pytestmark = pytest.mark.e2e

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLES = REPOSITORY / "configs" / "examples"
PLUGIN = "pod.plugin.RunnerPlugin"
# Losses are equal to the last digit only with the same number of threads.
SETTINGS = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
LIMIT_S = 120.0


@pytest.fixture(scope="session")
def axolotl_env() -> Path:
    """The trainer's virtual environment, with the tiny model made."""
    env = Path(os.environ.get("AXR_AXOLOTL_ENV", REPOSITORY / ".venv-axolotl"))
    if not (env / "bin" / "axolotl").exists():
        pytest.skip(f"no axolotl in {env}: run `make setup` or set AXR_AXOLOTL_ENV")
    subprocess.run([env / "bin" / "python", EXAMPLES / "make_tiny.py"], check=True)
    return env


@dataclass(frozen=True)
class Run:
    """A run directory and what it takes to train in it."""

    run_dir: RunDir
    env: Path

    def start(self, attempt: int = 1, *, resume_from: ledger.Checkpoint | None = None) -> None:
        write_json(
            self.run_dir.attempt_file,
            {
                "attempt": attempt,
                "from_checkpoint": resume_from.step if resume_from else None,
                "rung": None,
                "spike": {},
            },
        )
        trainer.start(
            self.run_dir,
            trainer.command(
                self.env / "bin" / "axolotl",
                self.run_dir,
                resume_from=resume_from.path if resume_from else None,
            ),
            trainer.trainer_environment(
                {**os.environ, **SETTINGS}, axolotl_env=self.env, run_dir=self.run_dir, gpu=False
            ),
            attempt=attempt,
            cwd=REPOSITORY,
        )

    def wait_until(self, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not true():
            assert time.monotonic() < deadline, self.run_dir.trainer_log.read_text()[-3000:]
            time.sleep(0.05)

    def finish(self, attempt: int = 1) -> verdict.Verdict:
        self.wait_until(lambda: trainer.find(self.run_dir) is None)
        process = trainer.last(self.run_dir)
        assert process is not None
        judged = verdict.judge(
            self.events(),
            attempt=attempt,
            alive=False,
            exit_code=process.exit_code(),
            log_tail=self.run_dir.trainer_log.read_text(errors="replace"),
            out=self.run_dir.out,
        )
        assert judged is not None
        return judged

    def events(self, kind: str | None = None, attempt: int | None = None) -> list[Event]:
        return [
            event
            for event in events.read(self.run_dir.events)[0]
            if (kind is None or event["kind"] == kind)
            and (attempt is None or event["attempt"] == attempt)
        ]

    def losses(self, attempt: int = 1) -> dict[int, float]:
        return {event["step"]: event["loss"] for event in self.events("step", attempt)}

    def reached(self, step: int) -> bool:
        return any(event["step"] >= step for event in self.events("step"))


def make_run(folder: Path, env: Path, task: str, **changes: object) -> Run:
    """Write what axolotl is given, as the prepare step does."""
    run_dir = RunDir(folder)
    config = yaml.safe_load((EXAMPLES / task).read_text())
    del config["runner"]
    config["plugins"] = [*config.get("plugins", []), PLUGIN]
    config["output_dir"] = str(run_dir.out)
    config["dataset_prepared_path"] = str(folder / "prepared")
    config.update(changes)
    folder.mkdir(parents=True, exist_ok=True)
    run_dir.axolotl_file.write_text(yaml.safe_dump(config))
    return Run(run_dir, env)


@pytest.fixture(scope="session")
def whole(
    axolotl_env: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Run, verdict.Verdict]:
    """A tiny run without faults, whose losses the other runs are compared with."""
    run = make_run(tmp_path_factory.mktemp("whole"), axolotl_env, "tiny.yml")
    run.start()
    return run, run.finish()


def test_a_run_without_faults_completes_and_reports_each_step_once(
    whole: tuple[Run, verdict.Verdict],
) -> None:
    """armed comes first and end last, 40 steps lie between, and every checkpoint is recorded."""
    run, judged = whole
    assert (judged.outcome, judged.note) == ("completed", None)
    assert (judged.first_step, judged.last_step, judged.planned_steps) == (1, 40, 40)
    kinds = [event["kind"] for event in run.events()]
    assert (kinds[0], kinds[-1], kinds.count("armed"), kinds.count("end")) == ("armed", "end", 1, 1)
    assert [event["step"] for event in run.events("step")] == list(range(1, 41))
    assert [event["checkpoint"] for event in run.events("save")][-1] == "checkpoint-40"
    assert run.events("eval")
    assert run.events("end")[0]["files"] == ["model.safetensors"]
    assert {c.health for c in ledger.checkpoints(run.run_dir) if c.step > 30} == {"healthy"}


def test_the_plugin_does_not_change_the_training(
    whole: tuple[Run, verdict.Verdict], tmp_path: Path
) -> None:
    """axolotl without the plugin logs the same losses, to the last digit that it prints."""
    run, _ = whole
    plain = make_run(tmp_path / "plain", run.env, "tiny.yml", plugins=[])
    plain.start()
    judged = plain.finish()
    assert judged.reason.startswith("plugin not loaded")
    log = plain.run_dir.trainer_log.read_text().replace("\r", "\n")
    printed = re.findall(r"^\{'loss': '([^']+)'", log, re.MULTILINE)
    assert printed == [f"{loss:.4g}" for loss in run.losses().values()]


def test_after_a_loss_spike_a_healthy_checkpoint_leads_to_the_end(
    whole: tuple[Run, verdict.Verdict], tmp_path: Path
) -> None:
    """The alarm comes soon, what it concerns is set aside, and the next attempt ends as if nothing had been."""
    healthy, _ = whole
    run = make_run(tmp_path / "spike", healthy.env, "spike.yml")
    run.start()
    first = run.finish()
    assert first.outcome == "loss_spike"
    assert first.onset_step == 25
    assert first.alarm_step is not None
    assert 0 <= first.alarm_step - first.onset_step <= 4
    assert not (run.run_dir.out / "model.safetensors").exists()
    assert run.events("end") == run.events("error") == []

    moved = ledger.quarantine(run.run_dir, onset=first.onset_step, attempt=1)
    assert moved == ["checkpoint-25.attempt-1"]
    checkpoint = ledger.pick(run.run_dir, before=first.onset_step)
    assert checkpoint is not None
    assert (checkpoint.step, checkpoint.health) == (20, "healthy")

    run.start(2, resume_from=checkpoint)
    second = run.finish(2)
    assert second.outcome == "completed"
    assert second.first_step == 21
    assert {s: loss for s, loss in healthy.losses().items() if s > 20} == run.losses(2)


def test_a_stop_through_the_control_file_saves_and_ends(
    whole: tuple[Run, verdict.Verdict], tmp_path: Path
) -> None:
    """The checkpoint of that very step is written, the command is answered, the verdict is cancelled."""
    run = make_run(tmp_path / "stop", whole[0].env, "tiny.yml", eval_steps=1000)
    run.start()
    run.wait_until(lambda: run.reached(6))
    process = trainer.find(run.run_dir)
    assert process is not None
    process.stop(30)
    judged = run.finish()
    assert judged.outcome == "cancelled"
    (answer,) = run.events("decision")
    assert (answer["seq"], answer["cmd"]) == (1, "stop")
    assert judged.last_step is not None
    assert judged.last_step < 40
    newest = ledger.pick(run.run_dir)
    assert newest is not None
    assert newest.step == answer["step"] == judged.last_step


def test_a_killed_trainer_is_a_crash_and_resumes_with_the_same_losses(
    whole: tuple[Run, verdict.Verdict], tmp_path: Path
) -> None:
    """SIGKILL leaves no word; the newest usable checkpoint goes on where it was."""
    healthy, _ = whole
    run = make_run(tmp_path / "killed", healthy.env, "tiny.yml")
    run.start()
    run.wait_until(lambda: run.reached(13))
    process = trainer.find(run.run_dir)
    assert process is not None
    os.killpg(process.pid, signal.SIGKILL)
    first = run.finish()
    assert first.outcome == "crash"
    assert "killed by the system" in first.reason

    ledger.quarantine(run.run_dir, onset=None, attempt=1)
    checkpoint = ledger.pick(run.run_dir)
    assert checkpoint is not None
    assert checkpoint.step >= 10
    run.start(2, resume_from=checkpoint)
    assert run.finish(2).outcome == "completed"
    after = {s: loss for s, loss in healthy.losses().items() if s > checkpoint.step}
    assert run.losses(2) == after
