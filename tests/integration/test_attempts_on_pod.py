"""Attempts on the pod, with a real process that plays the trainer's part."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from pod import events, ledger, trainer
from pod.rundir import RunDir, read_json
from runner.attempts import AttemptFacts
from runner.batch import Batch
from runner.errors import ConfigError
from runner.home import REPOSITORY
from runner.ladder import FIRST, NextAttempt, Stop, next_attempt
from runner.settings import ResumeSettings
from tasks import rewinding
from tasks import trainer as attempts
from tasks.facts import refused
from tasks.trainer import Plan, follow_trainer, start_or_attach
from tests.checkpoints import safetensors, torch_file

TASK = """base_model: x
micro_batch_size: 8   # rows
runner:
  resume: {ladder: [skip, {learning_rate: x0.5}], warm_seconds: 300}
"""


@dataclass
class Pod:
    """A run on a pod: its folder and the environment of its flows."""

    folder: RunDir
    environment: dict[str, str]
    done: list[AttemptFacts] = field(default_factory=list)

    def save(self, *steps: int) -> None:
        """Checkpoints as a trainer leaves them."""
        for step in steps:
            path = self.folder.out / f"checkpoint-{step}"
            path.mkdir(parents=True, exist_ok=True)
            (path / "model.safetensors").write_bytes(safetensors())
            for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
                (path / name).write_bytes(torch_file())
            (path / "trainer_state.json").write_text(json.dumps({"global_step": step}))
            ledger.record(path, step=step, attempt=1, health="healthy")

    def start(self, plan: Plan) -> trainer.Trainer | None:
        """What a new follower gets."""
        return start_or_attach.fn(self.folder, plan, self.environment)

    def follow(self, plan: Plan, process: trainer.Trainer | None) -> AttemptFacts:
        """Follow to the end of the attempt."""
        return follow_trainer.fn(self.folder, plan, process, lambda new: None)

    def attempt(self, plan: Plan) -> AttemptFacts:
        """One attempt, as the flow on the pod makes it."""
        facts = self.follow(plan, self.start(plan))
        self.done.append(facts)
        return facts

    def first(self) -> AttemptFacts:
        """The first attempt."""
        return self.attempt(Plan.of(FIRST, "tasks/x.yml"))

    def decided(self, **ladder: Any) -> Plan:
        """The next attempt by the ladder."""
        settings = ResumeSettings.model_validate(ladder or {"ladder": ["skip"]})
        plan = next_attempt(self.done, settings, batch=Batch(8, 1))
        assert isinstance(plan, NextAttempt), plan
        return Plan.of(plan, "tasks/x.yml")

    def said(self, kind: str, attempt: int) -> list[dict[str, Any]]:
        """The events of one kind and attempt."""
        every, _ = events.read(self.folder.events)
        return [e for e in every if (e["kind"], e["attempt"]) == (kind, attempt)]

    def pid(self) -> int:
        """The pid in trainer.json."""
        noted = read_json(self.folder.trainer_pid)
        assert noted is not None
        return int(noted["pid"])


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    """A pod with a prepared run, whose axolotl plays a part."""
    binary = tmp_path / "venv" / "bin" / "axolotl"
    binary.parent.mkdir(parents=True)
    binary.write_text(f'#!/bin/sh\nexec {sys.executable} -m tests.emulators.axolotl "$@"\n')
    binary.chmod(0o755)
    folder = RunDir(tmp_path / "run")
    folder.out.mkdir(parents=True)
    folder.task_file.write_text(TASK)
    folder.axolotl_file.write_text("micro_batch_size: 8\n")
    environment = {
        **os.environ,
        "AXR_AXOLOTL_ENV": str(tmp_path / "venv"),
        "AXR_REPOSITORY": str(REPOSITORY),
    }
    yield Pod(folder, environment)
    left = trainer.last(folder)
    if left is not None:
        left.stop(0)


def test_a_run_without_a_fault_is_one_attempt(pod: Pod) -> None:
    """The fake trainer completes, which the rest of these tests rely on."""
    facts = pod.first()
    assert (facts.outcome, facts.last_step, facts.planned_steps) == ("completed", 40, 40)


def test_after_an_alarm_the_waiting_trainer_goes_back_in_its_own_process(pod: Pod) -> None:
    """The follower of attempt 1 ends at once, that of attempt 2 sends the trainer back."""
    pod.environment["FAKE_AXOLOTL"] = "spike"
    pod.save(15, 20, 25)
    first = pod.first()
    assert (first.outcome, first.onset_step, first.alarm_step) == ("loss_spike", 22, 24)
    assert first.quarantined == ("checkpoint-25.attempt-1",), "set aside without a second attempt"
    assert [each.where for each in first.checkpoints] == ["out/checkpoint-15", "out/checkpoint-20"]
    waiting = trainer.find(pod.folder)
    assert waiting is not None

    second = pod.attempt(pod.decided())

    assert second.outcome == "completed"
    assert (second.from_checkpoint, second.first_step, second.last_step) == (20, 21, 40)
    assert second.rung == {"kind": "skip", "first": 21, "last": 24}
    assert pod.pid() == waiting.pid, "no second process"
    (rewound,) = pod.said("rewound", 2)
    assert rewound["from_checkpoint"] == 20
    (decision,) = pod.said("decision", 2)
    assert decision["cmd"] == "resume"
    assert decision["rung"] == {"kind": "skip", "first": 21, "last": 24}
    assert decision["why"] == first.reason


@pytest.mark.parametrize("dies", ["before", "after writing", "after asking", "after the answer"])
def test_a_follower_that_dies_anywhere_is_followed_by_one_that_goes_on(
    pod: Pod, dies: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One trainer process, one command, one answer, and no checkpoint but the one picked first."""
    pod.environment["FAKE_AXOLOTL"] = "spike"
    pod.save(15, 20)
    pod.first()
    plan, pid = pod.decided(), pod.pid()

    class Killed(BaseException):
        """The follower's process is gone."""

    def die(*_: Any, **__: Any) -> Any:
        raise Killed

    with monkeypatch.context() as patch:
        if dies == "before":
            patch.setattr(attempts, "rewind", die)
        elif dies == "after writing":
            patch.setattr(trainer, "request", die)
        elif dies == "after asking":
            patch.setattr(rewinding, "_answers", die)
        else:
            patch.setattr(rewinding, "write_json", die)
        with pytest.raises(Killed):
            pod.start(plan)
    facts = pod.attempt(plan)

    assert facts.outcome == "completed"
    assert facts.from_checkpoint == 20
    assert [e["step"] for e in pod.said("step", 2)] == list(range(21, 41)), "no step twice"
    assert len(pod.said("rewound", 2)) == len(pod.said("decision", 2)) == 1
    assert pod.pid() == pid


def test_a_dead_follower_of_the_first_attempt_sees_the_alarm_again(pod: Pod) -> None:
    """It attaches to the trainer that waits, and its facts are the same."""
    pod.environment["FAKE_AXOLOTL"] = "spike"
    pod.save(20)
    plan = Plan.of(FIRST)
    facts = pod.attempt(plan)
    again = pod.attempt(plan)
    assert again.alarm_step == facts.alarm_step == 24
    assert trainer.find(pod.folder) is not None


def test_a_follower_that_comes_too_late_disturbs_nothing(pod: Pod) -> None:
    """The trainer has gone on with the next attempt."""
    pod.environment["FAKE_AXOLOTL"] = "spike"
    pod.save(20)
    pod.first()
    process = pod.start(pod.decided())
    assert process is not None
    assert pod.start(Plan.of(FIRST)) is None
    assert pod.follow(Plan.of(FIRST), None).outcome == "loss_spike"
    assert pod.follow(pod.decided(), process).outcome == "completed"
    assert pod.start(Plan.of(FIRST)) is None
    pod.save(25)
    assert pod.follow(Plan.of(FIRST), None).outcome == "loss_spike"
    assert (pod.folder.out / "checkpoint-25").is_dir(), "it is the second attempt's, and healthy"


@pytest.mark.parametrize("fault", ["deaf", "gone"])
def test_a_trainer_that_does_not_answer_is_replaced(
    pod: Pod, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new process does the same from the same checkpoint."""
    monkeypatch.setattr(rewinding, "ANSWER_WITHIN", 0.3)
    monkeypatch.setattr(attempts, "GRACE", 0.1)
    monkeypatch.setattr(trainer, "TERMINATE_S", 0.1)
    pod.environment["FAKE_AXOLOTL"] = f"spike {fault}"
    pod.save(15, 20)
    pod.first()
    before = pod.pid()
    facts = pod.attempt(pod.decided())
    assert facts.outcome == "completed"
    assert facts.from_checkpoint == 20
    assert pod.said("rewound", 2) == []
    assert len(pod.said("decision", 2)) == 1
    assert pod.pid() != before


def test_without_a_checkpoint_a_new_process_starts_over(pod: Pod) -> None:
    """There is nothing to go back to; a window to skip stays what it was."""
    pod.environment["FAKE_AXOLOTL"] = "spike"
    pod.first()
    before = pod.pid()
    facts = pod.attempt(pod.decided())
    assert (facts.outcome, facts.first_step, facts.from_checkpoint) == ("completed", 1, None)
    assert facts.rung == {"kind": "skip", "first": 21, "last": 24}
    assert pod.pid() != before


@pytest.mark.parametrize(
    ("resume", "last", "waits"),
    [
        ("{warm_seconds: 300}", False, 300),
        ("{warm_seconds: 0}", False, 0),
        ("false", False, 0),
        ("{}", True, 0),
    ],
)
def test_the_trainer_waits_only_where_an_attempt_may_follow(
    pod: Pod, resume: str, last: bool, waits: int
) -> None:
    """A waiting GPU is billed."""
    pod.folder.task_file.write_text(f"base_model: x\nrunner: {{resume: {resume}}}\n")
    pod.environment["FAKE_AXOLOTL"] = "spike"
    facts = pod.attempt(Plan(1, last=last))
    orders = read_json(pod.folder.attempt_file)
    assert orders is not None
    assert orders["warm_seconds"] == waits
    assert facts.outcome == "loss_spike"
    assert (trainer.find(pod.folder) is not None) == bool(waits)


def test_out_of_memory_is_answered_by_a_smaller_batch(pod: Pod) -> None:
    """The new process finds 4 rows at once in axolotl.yml, and the same number of steps."""
    pod.environment["FAKE_AXOLOTL"] = "memory"
    first = pod.first()
    assert (first.outcome, first.last_step) == ("out_of_memory", 2)
    facts = pod.attempt(pod.decided())
    assert facts.outcome == "completed"
    assert facts.rung == {
        "kind": "smaller_batch", "micro_batch_size": 4, "gradient_accumulation_steps": 2
    }  # fmt: skip
    given = yaml.safe_load(pod.folder.axolotl_file.read_text())
    wanted = {"micro_batch_size": 4, "gradient_accumulation_steps": 2, "max_steps": 40}
    assert {name: given[name] for name in wanted} == wanted
    assert "runner" not in given
    assert "# rows" in pod.folder.axolotl_file.read_text(), "the user's file but for these keys"


def test_a_pod_with_another_number_of_gpus_keeps_the_rows_of_a_step(pod: Pod) -> None:
    """H39: 2 GPUs wrote the checkpoint, this pod has none. Its plan keeps its length."""
    pod.save(20)
    checkpoint = pod.folder.out / "checkpoint-20"
    batch = {"world_size": 2, "micro_batch_size": 8, "gradient_accumulation_steps": 1}
    (checkpoint / "trainer_state.json").write_text('{"global_step": 20, "max_steps": 40}')
    ledger.record(checkpoint, step=20, attempt=1, health="healthy", batch=batch)
    facts = pod.attempt(Plan(2))
    assert (facts.outcome, facts.from_checkpoint) == ("completed", 20)
    assert facts.note == (
        "16 rows a step from 1 GPU x micro_batch_size 8 x gradient_accumulation_steps 2, "
        "planned 2 GPUs x micro_batch_size 8 x gradient_accumulation_steps 1"
    )
    given = yaml.safe_load(pod.folder.axolotl_file.read_text())
    wanted = {"micro_batch_size": 8, "gradient_accumulation_steps": 2, "max_steps": 40}
    assert {name: given[name] for name in wanted} == wanted


def test_gpus_that_cant_share_a_step_are_refused_before_any_training(
    pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H39: 3 GPUs can't make up 8 rows; the attempt ends with one sentence."""
    monkeypatch.setattr(attempts, "gpus_here", lambda environment: ["0", "1", "2"])
    pod.folder.task_file.write_text(TASK + "  gpu_count: 3\n")
    pod.save(20)
    checkpoint = pod.folder.out / "checkpoint-20"
    batch = {"world_size": 1, "micro_batch_size": 8, "gradient_accumulation_steps": 1}
    ledger.record(checkpoint, step=20, attempt=1, health="healthy", batch=batch)
    with pytest.raises(ConfigError, match="3 GPUs can't share the 8 rows of a step") as wrong:
        pod.start(Plan(2))
    assert trainer.last(pod.folder) is None
    facts = refused(pod.folder, Plan(2), wrong.value)
    assert (facts.outcome, facts.from_checkpoint) == ("config_error", 20)
    assert next_attempt([facts], ResumeSettings()) == Stop(str(wrong.value))


def test_several_gpus_are_several_processes(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    """One each, by torchrun; what the run did not ask for is hidden from it."""
    monkeypatch.setattr(attempts, "gpus_here", lambda environment: ["0", "1", "2", "3"])
    pod.folder.task_file.write_text(TASK + "  gpu_count: 2\n")
    started: dict[str, Any] = {}

    def start(folder: RunDir, command: list[str], env: dict[str, str], **_: Any) -> Any:
        started.update(command=command, env=env)
        return trainer.Trainer(1, 1, 1, folder)

    monkeypatch.setattr(trainer, "start", start)
    pod.start(Plan.of(FIRST))
    assert started["command"][-1] == "--nproc-per-node=2"
    assert started["env"]["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_an_exhausted_ladder_leaves_the_healthy_checkpoint_and_names_it(pod: Pod) -> None:
    """The fault comes back under every rung; the factors reach the trainer's orders."""
    pod.environment["FAKE_AXOLOTL"] = "spike-always"
    pod.save(15, 20)
    pod.first()
    ladder = {"ladder": ["skip", {"learning_rate": "x0.5", "moments": "reset"}]}
    pod.attempt(pod.decided(**ladder))
    pod.attempt(pod.decided(**ladder))
    orders = read_json(pod.folder.attempt_file)
    assert orders is not None
    assert orders["factors"] == {"learning_rate": 0.5, "weight_decay": 1.0}
    assert orders["rung"] == {"kind": "scale", "learning_rate": 0.5, "moments": "reset"}
    plan = next_attempt(pod.done, ResumeSettings.model_validate(ladder))
    assert isinstance(plan, Stop)
    assert plan.kept == "out/checkpoint-20"
    assert (pod.folder.path / plan.kept).is_dir()


def test_a_window_never_begins_before_the_checkpoint_that_was_picked(pod: Pod) -> None:
    """The pod may find a newer one sound than the parent knew of."""
    pod.environment["FAKE_AXOLOTL"] = "spike"
    pod.save(15, 20)
    pod.first()
    facts = pod.attempt(Plan(2, 22, {"kind": "skip", "first": 16, "last": 24}))
    assert facts.rung == {"kind": "skip", "first": 21, "last": 24}
