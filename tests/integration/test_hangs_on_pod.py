"""A trainer that stands still: noticed, looked into, ended and resumed; a real process plays it."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pod import events, stacks, trainer
from pod.pace import Limits
from pod.pulse import PHASES
from pod.rundir import RunDir
from runner.attempts import AttemptFacts
from runner.home import REPOSITORY
from runner.ladder import FIRST, NextAttempt, Stop, next_attempt
from runner.settings import ResumeSettings
from tasks import hanging
from tasks.trainer import Plan, follow_trainer, start_or_attach

TASK = "base_model: x\nrunner:\n  resume: {hang_minutes: %s}\n"
SOON = 0.02  # minutes


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[RunDir]:
    """A prepared run, whose axolotl plays a part."""
    binary = tmp_path / "venv" / "bin" / "axolotl"
    binary.parent.mkdir(parents=True)
    binary.write_text(f'#!/bin/sh\nexec {sys.executable} -m tests.emulators.axolotl "$@"\n')
    binary.chmod(0o755)
    made = RunDir(tmp_path / "run")
    made.out.mkdir(parents=True)
    made.task_file.write_text(TASK % SOON)
    made.axolotl_file.write_text("micro_batch_size: 8\n")
    yield made
    left = trainer.last(made)
    if left is not None:
        left.stop(0)


def start(folder: RunDir, plan: Plan, words: str) -> trainer.Trainer | None:
    environment = {
        **os.environ,
        "AXR_AXOLOTL_ENV": str(folder.path.parent / "venv"),
        "AXR_REPOSITORY": str(REPOSITORY),
        "FAKE_AXOLOTL": words,
    }
    return start_or_attach.fn(folder, plan, environment)


def attempt(folder: RunDir, plan: Plan, words: str) -> AttemptFacts:
    """One attempt, as the flow on the pod makes it."""
    return follow_trainer.fn(folder, plan, start(folder, plan, words), lambda new: None)


def following(done: list[AttemptFacts]) -> NextAttempt | Stop:
    return next_attempt(done, ResumeSettings(hang_minutes=SOON))


def said(folder: RunDir, kind: str) -> list[dict[str, Any]]:
    return [event for event in events.read(folder.events)[0] if event["kind"] == kind]


def wait_for(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_hang_is_looked_into_ended_and_resumed(folder: RunDir) -> None:
    """Its stacks are in the log, where it stands is in the state's tail, the next one completes."""
    facts = attempt(folder, Plan.of(FIRST), "hang")
    assert facts.outcome == "hang"
    assert facts.reason.startswith("no step for ")
    assert facts.reason.endswith(" at step 24 while training")
    assert facts.last_step == 24
    assert any("stand_still" in line for line in facts.tail), facts.tail
    assert "=== stacks of process" in folder.trainer_log.read_text()
    assert trainer.find(folder) is None

    plan = following([facts])
    assert isinstance(plan, NextAttempt)
    assert plan.why == facts.reason
    assert attempt(folder, Plan.of(plan), "hang").outcome == "completed"


def test_a_second_hang_at_the_same_step_ends_the_run(folder: RunDir) -> None:
    """One more would be a loop."""
    first = attempt(folder, Plan.of(FIRST), "hang-always")
    plan = following([first])
    assert isinstance(plan, NextAttempt)
    second = attempt(folder, Plan.of(plan), "hang-always")
    end = following([first, second])
    assert isinstance(end, Stop)
    assert end.reason.endswith("while training; no progress: attempt 2 ended where attempt 1 did")


def test_the_stacks_come_without_py_spy_too(
    folder: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Missing, or ptrace denied: the trainer is asked to write them itself."""
    monkeypatch.setattr(stacks, "_find_spy", lambda: None)
    facts = attempt(folder, Plan.of(FIRST), "hang")
    assert facts.outcome == "hang"
    assert any("stand_still" in line for line in facts.tail), facts.tail
    assert "most recent call first" in folder.trainer_log.read_text()


class Killed(BaseException):
    """The follower's process is gone."""


@pytest.mark.parametrize("dies", ["before the stacks", "before the kill", "after the kill"])
def test_a_follower_that_dies_over_a_hang_leaves_the_verdict(
    folder: RunDir, dies: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one says hang, not crash, and the trainer is gone."""

    def die(*_: Any, **__: Any) -> Any:
        raise Killed

    plan = Plan.of(FIRST)
    process = start(folder, plan, "hang")
    with monkeypatch.context() as patch:
        if dies == "before the stacks":
            patch.setattr(stacks, "dump", die)
        elif dies == "before the kill":
            patch.setattr(trainer.Trainer, "stop", die)
        else:
            patch.setattr("tasks.trainer.read_facts", die)
        with pytest.raises(Killed):
            follow_trainer.fn(folder, plan, process, lambda new: None)
    facts = attempt(folder, plan, "hang")
    assert facts.outcome == "hang"
    assert facts.last_step == 24
    assert trainer.find(folder) is None
    assert len(said(folder, "hang")) == 1


def test_a_download_that_froze_is_tried_again_without_xet(
    folder: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H25: nothing is computed, read or written; the variable is there before the start."""
    monkeypatch.setattr("pod.work.MEASURE_EVERY", 0.5)
    monkeypatch.setattr(
        "pod.pace.LIMITS", dict.fromkeys(PHASES, Limits(60.0, 60.0, 60.0, idle=1.0))
    )
    monkeypatch.delenv("HF_HUB_DISABLE_XET", raising=False)
    facts = attempt(folder, Plan.of(FIRST), "hang-loading")
    assert facts.outcome == "hang"
    assert facts.reason.endswith("at step 0 while loading; nothing was computed, read or written")
    plan = following([facts])
    assert isinstance(plan, NextAttempt)
    assert attempt(folder, Plan.of(plan), "hang-loading").outcome == "completed"


def test_a_training_may_stand_still_where_hangs_are_switched_off(folder: RunDir) -> None:
    """hang_minutes -1; the user ends it."""
    folder.task_file.write_text(TASK % -1)
    plan = Plan.of(FIRST)
    process = start(folder, plan, "hang")
    assert process is not None
    follower = threading.Thread(target=follow_trainer.fn, args=(folder, plan, process, len))
    follower.start()
    wait_for(lambda: len(said(folder, "step")) == 24)
    time.sleep(3 * 60 * SOON)
    assert process.alive()
    assert said(folder, "hang") == []
    process.stop(0)
    follower.join()


def test_a_process_that_nothing_ends_is_said_and_still_a_hang(
    folder: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel may hold one for ever, on a network disk that is gone."""

    def outlive(*_: Any, **__: Any) -> None:
        raise TimeoutError("trainer 7 outlives SIGKILL")

    with monkeypatch.context() as patch:
        patch.setattr(trainer.Trainer, "stop", outlive)
        facts = attempt(folder, Plan.of(FIRST), "hang")
    assert facts.outcome == "hang"


def test_the_pace_of_the_log_is_that_of_its_steps() -> None:
    """Several steps an entry; attempts are not mixed, nor steps that were trained again."""
    seen = [
        {"kind": kind, "t": t, "attempt": n, "step": step}
        for kind, t, n, step in [
            ("step", 10.0, 1, 10), ("eval", 20.0, 1, 10), ("step", 40.0, 1, 20),
            ("step", 500.0, 2, 15), ("step", 510.0, 2, 20),
        ]
    ]  # fmt: skip
    assert hanging.paces(seen) == [3.0, 2.0]
