from pathlib import Path

import pytest

from pod.rundir import RunDir
from pod.saving import NotSaved, holds_something, save_only_copy, stop_trainer, worker_environment


def python(folder: Path, script: str) -> dict[str, str]:
    """An environment whose worker's Python is this script."""
    program = folder / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return {"AXR_PYTHON": str(program), "PATH": "/usr/bin:/bin"}


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    (tmp_path / "run" / "out" / "checkpoint-5").mkdir(parents=True)
    return RunDir(tmp_path / "run")


def test_the_last_line_of_a_rescue_is_its_outcome(tmp_path: Path, run_dir: RunDir) -> None:
    """Whatever libraries say before it."""
    environment = python(tmp_path, """echo hello; echo '{"saved": "it in s3://b"}'""")
    assert save_only_copy(run_dir, "run", environment, within=20) == "it in s3://b"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("""echo '{"error": "the bucket is full"}'""", "the bucket is full"),
        ("exit 3", "left no word"),
        ("echo 7", "left no word"),
        ("sleep 60", "did not end within"),
    ],
)
def test_a_rescue_that_fails_has_one_reason(
    tmp_path: Path, run_dir: RunDir, script: str, reason: str
) -> None:
    """H25: one whose transfer stands still is cut off."""
    with pytest.raises(NotSaved, match=reason):
        save_only_copy(run_dir, "run", python(tmp_path, script), within=1.0)


def test_a_rescue_that_cannot_run_is_not_saved(run_dir: RunDir) -> None:
    """No Python, no rescue: and nobody may think otherwise."""
    with pytest.raises(NotSaved, match="could not run"):
        save_only_copy(run_dir, "run", {"AXR_PYTHON": "/nowhere/python"}, within=5)


def test_without_a_model_and_a_checkpoint_nobody_is_asked(tmp_path: Path) -> None:
    """A pod that never trained ends at once."""
    run_dir = RunDir(tmp_path)
    (run_dir.out).mkdir()
    (run_dir.out / "config.json").touch()
    assert not holds_something(run_dir)
    said = save_only_copy(run_dir, "run", {"AXR_PYTHON": "/nowhere/python"}, within=5)
    assert said.startswith("nothing")
    (run_dir.out / "model.safetensors").touch()
    assert holds_something(run_dir)


def test_a_rescue_may_ask_the_hub_where_a_training_may_not() -> None:
    """The task file's switch is meant for the trainer; Xet stays off (H25)."""
    passed = worker_environment({"HF_HUB_OFFLINE": "1", "HF_TOKEN": "t"})
    assert "HF_HUB_OFFLINE" not in passed
    assert (passed["HF_TOKEN"], passed["HF_HUB_DISABLE_XET"]) == ("t", "1")


def test_a_run_without_a_trainer_has_nothing_to_stop(tmp_path: Path) -> None:
    """Also where its note is damaged."""
    run_dir = RunDir(tmp_path)
    stop_trainer(run_dir, 5.0)
    run_dir.trainer_pid.write_text("{")
    stop_trainer(run_dir, 5.0)
