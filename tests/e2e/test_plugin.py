"""The plugin inside real axolotl trainings of the tiny model, started and judged as on a pod."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
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
        """Wait for something the trainer does; fails when it takes too long."""
        deadline = time.monotonic() + LIMIT_S
        while not true():
            assert time.monotonic() < deadline, self.run_dir.trainer_log.read_text()[-3000:]
            time.sleep(0.05)

    def living(self) -> trainer.Trainer:
        process = trainer.find(self.run_dir)
        assert process is not None, self.run_dir.trainer_log.read_text()[-3000:]
        return process

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


@dataclass(frozen=True)
class Ended:
    """A run and the verdict on each of its attempts."""

    run: Run
    verdicts: tuple[verdict.Verdict, ...]


def whole(folder: Path, env: Path) -> Ended:
    """No fault: its losses are what the other runs are compared with. Then its model gets lost."""
    run = make_run(folder, env, "tiny.yml")
    run.start()
    first = run.finish()
    (run.run_dir.out / "model.safetensors").rename(folder / "first.safetensors")
    run.start(2, resume_from=ledger.pick(run.run_dir))
    return Ended(run, (first, run.finish(2)))


def plain(folder: Path, env: Path) -> Ended:
    """axolotl alone, without our plugin."""
    run = make_run(folder, env, "tiny.yml", plugins=[])
    run.start()
    return Ended(run, (run.finish(),))


def spiked(folder: Path, env: Path) -> Ended:
    """The weights are ruined after step 24; a second attempt starts from what is picked then."""
    run = make_run(folder, env, "spike.yml")
    run.start()
    first = run.finish()
    ledger.quarantine(run.run_dir, onset=first.onset_step, attempt=1)
    run.start(2, resume_from=ledger.pick(run.run_dir, before=first.onset_step))
    return Ended(run, (first, run.finish(2)))


def interrupted(folder: Path, env: Path) -> Ended:
    """Stopped on request at about step 6, killed at about step 17, then left alone."""
    run = make_run(folder, env, "tiny.yml")
    run.start()
    run.wait_until(lambda: run.reached(6))
    run.living().stop(LIMIT_S)
    first = run.finish()
    run.start(2, resume_from=ledger.pick(run.run_dir))
    run.wait_until(lambda: run.reached(17))
    os.killpg(run.living().pid, signal.SIGKILL)
    second = run.finish(2)
    ledger.quarantine(run.run_dir, onset=None, attempt=2)
    run.start(3, resume_from=ledger.pick(run.run_dir))
    return Ended(run, (first, second, run.finish(3)))


@pytest.fixture(scope="session")
def runs(axolotl_env: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Future[Ended]]:
    """All eight trainings, two at a time: each needs 20 s of one core to load axolotl alone."""
    folder = tmp_path_factory.mktemp("runs")
    with ThreadPoolExecutor(max_workers=2) as pool:
        return {
            scenario.__name__: pool.submit(scenario, folder / scenario.__name__, axolotl_env)
            for scenario in (interrupted, spiked, whole, plain)
        }


def losses_after(ended: Ended, step: int) -> dict[int, float]:
    return {n: loss for n, loss in ended.run.losses().items() if n > step}


def test_a_run_without_faults_completes_and_reports_each_step_once(
    runs: dict[str, Future[Ended]],
) -> None:
    """armed comes first and end last, 40 steps lie between, every checkpoint is recorded."""
    ended = runs["whole"].result()
    run, judged = ended.run, ended.verdicts[0]
    assert (judged.outcome, judged.note) == ("completed", None)
    assert (judged.first_step, judged.last_step, judged.planned_steps) == (1, 40, 40)
    kinds = [event["kind"] for event in run.events(attempt=1)]
    assert (kinds[0], kinds[-1], kinds.count("armed"), kinds.count("end")) == ("armed", "end", 1, 1)
    assert [event["step"] for event in run.events("step", 1)] == list(range(1, 41))
    assert [event["step"] for event in run.events("save")] == list(range(5, 41, 5))
    assert run.events("eval")
    assert run.events("end")[0]["files"] == ["model.safetensors"]
    assert "unrecorded" not in {c.health for c in ledger.checkpoints(run.run_dir)}


def test_a_model_lost_after_the_last_step_is_written_without_training(
    runs: dict[str, Future[Ended]],
) -> None:
    """From the last checkpoint comes the same model; axolotl alone would train a step 41 of 40."""
    ended = runs["whole"].result()
    second = ended.verdicts[1]
    assert (second.outcome, second.first_step, second.last_step) == ("completed", None, 40)
    assert ended.run.events("step", 2) == []
    run_dir = ended.run.run_dir
    lost, written = run_dir.path / "first.safetensors", run_dir.out / "model.safetensors"
    assert written.read_bytes() == lost.read_bytes()


def test_the_plugin_does_not_change_the_training(runs: dict[str, Future[Ended]]) -> None:
    """axolotl without the plugin logs the same losses, to the last digit that it prints."""
    alone = runs["plain"].result()
    assert alone.verdicts[0].reason.startswith("plugin not loaded")
    log = alone.run.run_dir.trainer_log.read_text().replace("\r", "\n")
    printed = re.findall(r"^\{'loss': '([^']+)'", log, re.MULTILINE)
    assert printed == [f"{loss:.4g}" for loss in runs["whole"].result().run.losses().values()]


def test_a_loss_spike_ends_the_attempt_soon_and_without_a_model(
    runs: dict[str, Future[Ended]],
) -> None:
    """The alarm names the step after the fault; the traceback is no error of its own."""
    ended = runs["spiked"].result()
    first = ended.verdicts[0]
    assert (first.outcome, first.onset_step, first.first_step) == ("loss_spike", 25, 1)
    assert first.alarm_step is not None
    assert 26 <= first.alarm_step <= 29
    assert ended.run.events("error") == ended.run.events("end", 1) == []
    assert "LossSpike" in first.tail[-1]


def test_after_a_loss_spike_a_healthy_checkpoint_leads_to_the_end(
    runs: dict[str, Future[Ended]],
) -> None:
    """What the spike touched is set aside, and the rest is trained as if nothing had been."""
    ended = runs["spiked"].result()
    second = ended.verdicts[1]
    assert [path.name for path in ended.run.run_dir.quarantine.iterdir()] == [
        "checkpoint-25.attempt-1"
    ]
    assert (second.outcome, second.first_step, second.last_step) == ("completed", 21, 40)
    assert ended.run.losses(2) == losses_after(runs["whole"].result(), 20)


def test_a_stop_through_the_control_file_saves_and_ends(runs: dict[str, Future[Ended]]) -> None:
    """That very step is saved, the command is answered, the verdict is cancelled."""
    ended = runs["interrupted"].result()
    first, second, _ = ended.verdicts
    (answer,) = ended.run.events("decision")
    assert (answer["seq"], answer["cmd"], answer["step"]) == (1, "stop", first.last_step)
    assert first.outcome == "cancelled"
    assert answer["step"] < 17
    assert second.first_step == answer["step"] + 1


def test_a_killed_trainer_is_a_crash_and_resumes_with_the_same_losses(
    runs: dict[str, Future[Ended]],
) -> None:
    """SIGKILL leaves no word; the newest usable checkpoint goes on where it was."""
    ended = runs["interrupted"].result()
    _, second, third = ended.verdicts
    assert second.outcome == "crash"
    assert "killed by the system" in second.reason
    assert third.outcome == "completed"
    assert third.first_step is not None
    assert second.last_step is not None
    assert second.last_step - 6 <= third.first_step <= second.last_step + 1
    reference = runs["whole"].result()
    assert ended.run.losses(3) == losses_after(reference, third.first_step - 1)
