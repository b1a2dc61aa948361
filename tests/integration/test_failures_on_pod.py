"""Trainers that fail for real on a pod: what the attempt says of it, and what the ladder does."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pod import ledger, trainer
from pod.rundir import RunDir
from runner.attempts import AttemptFacts
from runner.home import REPOSITORY
from runner.ladder import FIRST, Stop, next_attempt
from runner.settings import ResumeSettings
from tasks.trainer import Plan, follow_trainer, start_or_attach
from tests.checkpoints import safetensors, torch_file

PACKING = """
raise ValueError(
    "eval dataset split is too small for sample_packing. "
    "You should set `eval_sample_packing: False` in your config."
)
"""
BAR_OF_TWO_MEGABYTES = """
import sys
bars = (f"{n % 100}%|##| {n}/9999 [00:01<00:02, 9.0it/s]" for n in range(60000))
sys.stdout.write("\\r".join(bars))
print(flush=True)
raise KeyError("labels")
"""
# Steps 1-20 with a checkpoint at 20 was trained; the one of step 25 meets a device that is full.
DISK_FULL = """
import os, pathlib, shutil
from pod import events
from pod.rundir import RunDir
run = RunDir(pathlib.Path(os.environ["AXR_RUN_DIR"]))
events.append(run.events, "armed", 1, 0, planned_steps=40, logging_steps=1, save_steps=5)
for step in range(1, 26):
    events.append(run.events, "step", 1, step, loss=2.0, grad_norm=1.0)
half = run.out / "checkpoint-25"
half.mkdir()
(half / "model.safetensors").write_bytes(b"1234")
with open("/dev/full", "wb") as full:
    full.write(b"x" * 100_000)
"""
KILLED = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"


@pytest.fixture
def fails(tmp_path: Path) -> Iterator[Callable[[str], tuple[RunDir, AttemptFacts]]]:
    """Runs a first attempt whose axolotl is this Python text."""
    folder = RunDir(tmp_path / "run")

    def run(program: str) -> tuple[RunDir, AttemptFacts]:
        binary = tmp_path / "venv" / "bin" / "axolotl"
        binary.parent.mkdir(parents=True)
        binary.write_text(f"#!{sys.executable}\n{program}")
        binary.chmod(0o755)
        folder.out.mkdir(parents=True)
        folder.task_file.write_text("base_model: x\n")
        folder.axolotl_file.write_text("base_model: x\n")
        environment = {
            **os.environ,
            "AXR_AXOLOTL_ENV": str(tmp_path / "venv"),
            "AXR_REPOSITORY": str(REPOSITORY),
        }
        save(folder, 20)
        plan = Plan.of(FIRST, "x.yml")
        process = start_or_attach.fn(folder, plan, environment)
        return folder, follow_trainer.fn(folder, plan, process, lambda new: None)

    yield run
    if left := trainer.last(folder):
        left.stop(0)


def save(folder: RunDir, step: int) -> None:
    """A healthy checkpoint of this step."""
    path = folder.out / f"checkpoint-{step}"
    path.mkdir()
    (path / "model.safetensors").write_bytes(safetensors())
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        (path / name).write_bytes(torch_file())
    (path / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    ledger.record(path, step=step, attempt=1, health="healthy")


def test_an_eval_split_that_is_too_small_is_a_config_error_and_not_tried_again(
    fails: Callable[[str], tuple[RunDir, AttemptFacts]],
) -> None:
    """H08: exit 1 before the first step; the telling line, not "exit status 1"."""
    _, facts = fails(PACKING)
    assert facts.outcome == "config_error"
    assert "eval dataset split is too small for sample_packing" in facts.reason
    assert facts.diagnosis is not None
    assert facts.diagnosis.kind == "eval split too small"
    assert "eval_sample_packing: false" in facts.diagnosis.advice
    plan = next_attempt([facts], ResumeSettings())
    assert plan == Stop(facts.reason)


def test_a_line_of_two_megabytes_hides_no_traceback(
    fails: Callable[[str], tuple[RunDir, AttemptFacts]],
) -> None:
    """H58: the reason, the tail and the diagnosis have it; the log is kept whole."""
    folder, facts = fails(BAR_OF_TWO_MEGABYTES)
    assert folder.trainer_log.stat().st_size > 1_800_000
    assert facts.reason == "KeyError: 'labels' (before the first step)"
    assert facts.diagnosis is not None
    assert facts.diagnosis.lines[-1] == "KeyError: 'labels'"
    assert 'File "' in facts.diagnosis.lines[0]


def test_a_full_disk_costs_the_half_checkpoint_and_no_other(
    fails: Callable[[str], tuple[RunDir, AttemptFacts]],
) -> None:
    """H41: the partial folder is set aside, the healthy one is kept and named, and nothing is
    resumed on the same full disk.
    """
    folder, facts = fails(DISK_FULL)
    assert facts.outcome == "crash"
    assert facts.reason.startswith("disk full at step 25 of 40")
    assert facts.diagnosis is not None
    assert facts.diagnosis.kind == "disk full"
    assert facts.quarantined == ("checkpoint-25.attempt-1",)
    assert [each.name for each in folder.out.iterdir()] == ["checkpoint-20"]
    plan = next_attempt([facts], ResumeSettings())
    assert isinstance(plan, Stop)
    assert plan.kept == "out/checkpoint-20"
    assert "make room" in plan.reason


def test_a_trainer_that_the_system_killed_is_told_as_one(
    fails: Callable[[str], tuple[RunDir, AttemptFacts]],
) -> None:
    """H32: -9 is no reason that anybody understands."""
    _, facts = fails(KILLED)
    assert facts.diagnosis is not None
    assert facts.diagnosis.kind == "out of host memory"
    assert "min_memory_in_gb" in facts.diagnosis.advice
