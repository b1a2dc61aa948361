"""Starting, finding and stopping a trainer process; small real processes stand for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pod import events, trainer
from pod.rundir import RunDir, read_json, write_json
from pod.trainer import StillRunning, Trainer

SLEEPER = ["sleep", "60"]
IGNORES_SIGTERM = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)\n"
    "time.sleep(60)"
)
OBEYS = (
    "import pathlib, sys, time\n"
    "while not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)\n"
    "print('saved', flush=True)"
)
LEAVES_A_CHILD_IN_ITS_OWN_SESSION = (
    "import subprocess, time\n"
    "child = subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
    "print('child', child.pid, flush=True); time.sleep(60)"
)


@pytest.fixture
def run_dir(tmp_path: Path) -> Iterator[RunDir]:
    folder = RunDir(tmp_path / "run")
    yield folder
    left = trainer.last(folder)
    if left is not None:
        left.stop(0)


def start(run_dir: RunDir, command: list[str], attempt: int = 1) -> Trainer:
    return trainer.start(run_dir, command, dict(os.environ), attempt=attempt, cwd=Path.cwd())


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", code, *arguments]


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "gone"


def wait_for(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 5
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_trainer_has_its_own_session_and_log(run_dir: RunDir) -> None:
    """It outlives its starter: no shared session, no shared input or output."""
    process = start(run_dir, python("import os; print(os.getsid(0) == os.getpid())"))
    wait_for(lambda: not process.alive())
    assert run_dir.trainer_log.read_text() == "=== attempt 1 ===\nTrue\n"
    assert process.exit_code() == 0
    assert trainer.find(run_dir) is None
    assert trainer.last(run_dir) == process


def test_a_living_trainer_is_found_by_pid_and_start_time(run_dir: RunDir) -> None:
    """The pid alone may belong to somebody else by now."""
    process = start(run_dir, SLEEPER)
    assert process.alive()
    assert process.exit_code() is None
    assert trainer.find(run_dir) == process
    write_json(run_dir.trainer_pid, {"pid": process.pid, "start": process.start + 1, "attempt": 1})
    assert trainer.find(run_dir) is None
    write_json(run_dir.trainer_pid, {"pid": process.pid, "start": process.start, "attempt": 1})


def test_the_same_attempt_is_attached_to_and_another_one_refused(run_dir: RunDir) -> None:
    """There are never two trainers in one run directory."""
    process = start(run_dir, SLEEPER)
    assert start(run_dir, SLEEPER) == process
    with pytest.raises(StillRunning):
        start(run_dir, SLEEPER, attempt=2)


def test_followers_that_start_at_the_same_time_get_the_same_trainer(run_dir: RunDir) -> None:
    """The lock lets one of them start it and gives it to the others."""
    found: list[Trainer] = []
    threads = [
        threading.Thread(target=lambda: found.append(start(run_dir, SLEEPER))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len({process.pid for process in found}) == 1


def test_a_trainer_that_nobody_wrote_down_is_ended_first(
    run_dir: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its starter died before it wrote trainer.json; the mark in the environment shows it."""
    monkeypatch.setattr(trainer, "LEAVE_S", 0.0)
    lost = start(run_dir, SLEEPER)
    run_dir.trainer_pid.unlink()
    process = start(run_dir, SLEEPER)
    assert process.alive()
    assert process.pid != lost.pid
    assert not lost.alive()


def test_a_zombie_counts_as_dead() -> None:
    """A process that nobody has reaped yet trains no more."""
    child = subprocess.Popen(["true"])
    wait_for(lambda: state_of(child.pid) == "Z")
    assert not Trainer(child.pid, 0, 1, RunDir(Path("/nowhere"))).alive()
    child.wait()


def test_stop_asks_first(run_dir: RunDir) -> None:
    """A trainer that obeys the control file ends by itself, with exit code 0."""
    process = start(run_dir, python(OBEYS, str(run_dir.control)))
    process.stop(5)
    assert read_json(run_dir.control) == {"seq": 1, "cmd": "stop"}
    assert process.exit_code() == 0
    assert run_dir.trainer_log.read_text().endswith("saved\n")


def test_stop_ends_a_trainer_that_ignores_everything(
    run_dir: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the grace come SIGTERM and SIGKILL, and it is gone when stop returns."""
    monkeypatch.setattr(trainer, "TERMINATE_S", 0.05)
    process = start(run_dir, python(IGNORES_SIGTERM))
    wait_for(lambda: "up" in run_dir.trainer_log.read_text())
    process.stop(0.05)
    assert not process.alive()
    assert process.exit_code() == -signal.SIGKILL


def test_stop_also_ends_children_in_sessions_of_their_own(run_dir: RunDir) -> None:
    """torchrun puts its workers there, out of reach of a signal to the group."""
    process = start(run_dir, python(LEAVES_A_CHILD_IN_ITS_OWN_SESSION))
    wait_for(lambda: "child" in run_dir.trainer_log.read_text())
    child = int(run_dir.trainer_log.read_text().split()[-1])
    process.stop(0)
    assert state_of(child) in ("gone", "Z")


def test_an_old_command_is_not_meant_for_a_new_attempt(run_dir: RunDir) -> None:
    """It is taken away at the start, and sequence numbers go on growing."""
    write_json(run_dir.control, {"seq": 4, "cmd": "stop"})
    events.append(run_dir.events, "decision", 1, 9, seq=4, cmd="stop")
    start(run_dir, SLEEPER, attempt=2)
    assert not run_dir.control.exists()
    assert trainer.request(run_dir, "stop") == 5


def test_the_command_line_names_the_file_the_launcher_and_the_checkpoint(run_dir: RunDir) -> None:
    """axolotl trains what the prepare step wrote, never an automatically found checkpoint."""
    words = trainer.command(Path("bin/axolotl"), run_dir, resume_from=run_dir.out / "checkpoint-5")
    assert words == [
        *("bin/axolotl", "train", str(run_dir.axolotl_file), "--launcher", "python"),
        *("--resume-from-checkpoint", str(run_dir.out / "checkpoint-5")),
    ]
    assert "--resume-from-checkpoint" not in trainer.command(Path("axolotl"), run_dir)


def test_several_processes_are_torchruns(run_dir: RunDir) -> None:
    """One for each GPU; axolotl hands what stands behind -- to it."""
    words = trainer.command(
        Path("axolotl"), run_dir, resume_from=run_dir.out / "checkpoint-5", processes=4
    )
    assert words[3:5] == ["--launcher", "torchrun"]
    assert words[-3:] == ["--", "--standalone", "--nproc-per-node=4"]


@pytest.mark.parametrize("gpu", [True, False])
def test_the_environment_leads_to_the_trainers_own_packages(run_dir: RunDir, gpu: bool) -> None:
    """PATH must hold its bin folder, where axolotl looks accelerate up; our code is importable."""
    base = {"PATH": "/usr/bin", "PYTHONPATH": "/more", "HF_HOME": "/cache", "PYTHONHOME": "/x"}
    env = trainer.trainer_environment(base, axolotl_env=Path("/venv"), run_dir=run_dir, gpu=gpu)
    assert env["PATH"] == "/venv/bin:/usr/bin"
    first, second = env["PYTHONPATH"].split(":")
    assert (Path(first) / "pod" / "plugin.py").is_file()
    assert second == "/more"
    assert (env["AXR_RUN_DIR"], env["HF_HOME"]) == (str(run_dir.path), "/cache")
    assert "PYTHONHOME" not in env
    assert ("CUDA_VISIBLE_DEVICES" in env, "ACCELERATE_USE_CPU" in env) == (not gpu, not gpu)
