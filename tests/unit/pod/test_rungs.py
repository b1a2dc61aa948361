"""What an attempt wants changed, and how it is done to checkpoints, optimizers and schedules."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pod import rungs
from pod.rungs import Change, Factors, Skip

HALF = Factors(learning_rate=0.5, weight_decay=2.0)


@dataclass
class FakeOptimizer:
    """Groups and moments, as torch's optimizers have them."""

    param_groups: list[dict[str, Any]]
    state: dict[str, Any] = field(default_factory=lambda: {"weight": {"step": 20}})


@dataclass
class FakeSchedule:
    """What torch's schedules keep between two steps."""

    base_lrs: list[float]
    _last_lr: list[float]
    last_epoch: int = 0
    max_lr: float | None = None
    min_lr: float | None = None
    inner_schedule: FakeSchedule | None = None

    def step(self) -> None:
        self.last_epoch += 1


@dataclass
class FakeState:
    """The part of the trainer's state that checkpoints carry for callbacks."""

    stateful_callbacks: dict[str, Any] = field(default_factory=dict)


def make_optimizer() -> FakeOptimizer:
    return FakeOptimizer(
        [
            {"lr": 0.1, "initial_lr": 0.4, "max_lr": 0.4, "min_lr": 0.01, "weight_decay": 0.2},
            {"lr": 0.2, "initial_lr": 0.8, "weight_decay": 0.0},
        ]
    )


def make_schedule(**fields: Any) -> FakeSchedule:
    return FakeSchedule(base_lrs=[0.4, 0.8], _last_lr=[0.1, 0.2], **fields)


def make_checkpoint(folder: Path, step: int = 15, **state: Any) -> Path:
    folder.mkdir(parents=True)
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step, **state}))
    for name in ("model.safetensors", "optimizer.pt", "scheduler.pt"):
        (folder / name).write_bytes(name.encode())
    return folder


@pytest.mark.parametrize(
    ("attempt", "change"),
    [
        ({}, Change()),
        ({"rung": None, "factors": None}, Change()),
        ({"rung": {"kind": "replay"}}, Change("replay")),
        (
            {
                "rung": {"kind": "replay"},
                "factors": {"learning_rate": 0.5, "weight_decay": 1.0},
            },
            Change("replay", Factors(0.5, 1.0)),
        ),
        ({"rung": {"kind": "skip", "first": 24, "last": 27}}, Change("skip", skip=Skip(24, 27))),
        ({"rung": {"kind": "scale", "learning_rate": 0.5}}, Change("scale", Factors(0.5, 1.0))),
        (
            {
                "rung": {"kind": "scale", "weight_decay": 2.0, "moments": "reset"},
                "factors": {"learning_rate": 1.0, "weight_decay": 2.0},
            },
            Change("scale", Factors(1.0, 2.0), reset_moments=True),
        ),
        ({"rung": {"kind": "scale", "moments": "keep"}}, Change("scale", Factors())),
        ({"rung": {"kind": "smaller_batch", "micro_batch_size": 2}}, Change("smaller_batch")),
    ],
)
def test_the_rung_and_the_factors_of_an_attempt_are_understood(
    attempt: dict[str, Any], change: Change
) -> None:
    """The factors in force come beside the rung; a missing one is 1."""
    assert rungs.wanted(attempt) == change


@pytest.mark.parametrize(
    "attempt",
    [
        {"rung": {"kind": "skip", "first": 9, "last": 8}},
        {"rung": {"kind": "skip", "first": 0, "last": 8}},
        {"rung": {"kind": "scale", "learning_rate": 0.0}},
        {"factors": {"weight_decay": -1.0}},
    ],
)
def test_a_rung_without_sense_is_refused(attempt: dict[str, Any]) -> None:
    """Better no attempt than one that trains something else."""
    with pytest.raises(ValueError, match=r"window|above 0"):
        rungs.wanted(attempt)


def test_factors_reach_every_place_where_a_rate_is_kept() -> None:
    """Groups, base rates, limits, and the schedule inside a schedule."""
    optimizer, inner = make_optimizer(), make_schedule()
    schedule = make_schedule(max_lr=0.4, min_lr=0.01, inner_schedule=inner)
    rungs.apply_factors(HALF, FakeState(), optimizer, schedule, loaded=True)
    assert optimizer.param_groups == [
        {"lr": 0.05, "initial_lr": 0.2, "max_lr": 0.2, "min_lr": 0.005, "weight_decay": 0.4},
        {"lr": 0.1, "initial_lr": 0.4, "weight_decay": 0.0},
    ]
    assert (schedule.max_lr, schedule.min_lr) == (0.2, 0.005)
    for each in (schedule, inner):
        assert (each.base_lrs, each._last_lr) == ([0.2, 0.4], [0.05, 0.1])
    assert rungs.real_values(optimizer) == {
        "learning_rate": [0.05, 0.1],
        "weight_decay": [0.4, 0.0],
    }


def test_factors_are_absolute_and_never_applied_twice() -> None:
    """A checkpoint notes what it was trained with; only the difference is applied."""
    optimizer, schedule, state = make_optimizer(), make_schedule(), FakeState()

    def apply(factors: Factors | None) -> Factors:
        return rungs.apply_factors(factors, state, optimizer, schedule, loaded=True)

    apply(HALF)
    apply(HALF)
    assert apply(None) == HALF
    assert (optimizer.param_groups[0]["lr"], schedule.base_lrs[0]) == (0.05, 0.2)
    apply(Factors(0.25, 2.0))
    assert optimizer.param_groups[0]["lr"] == 0.025
    apply(Factors())
    assert optimizer.param_groups[0] == make_optimizer().param_groups[0]


def test_a_new_optimizer_has_the_task_files_values_whatever_the_checkpoint_notes() -> None:
    """With save_only_model there is no optimizer.pt, so the whole factor is due."""
    state = FakeState()
    rungs.apply_factors(HALF, state, make_optimizer(), make_schedule(), loaded=True)
    fresh = make_optimizer()
    rungs.apply_factors(None, state, fresh, make_schedule(), loaded=False)
    assert fresh.param_groups[0]["lr"] == 0.05


def test_a_schedule_is_moved_on_by_the_steps_that_are_skipped() -> None:
    """It stands where the checkpoint left it; one that goes by the losses has nothing to move."""
    schedule = make_schedule(last_epoch=15)
    rungs.advance_schedule(schedule, len(Skip(16, 27)))
    assert schedule.last_epoch == 27
    rungs.advance_schedule(object(), 12)


def test_reset_moments_leaves_the_optimizer_new() -> None:
    """Its count of steps goes too."""
    optimizer = make_optimizer()
    rungs.reset_moments(optimizer)
    assert optimizer.state == {}


def test_a_doctored_copy_says_another_step_and_leaves_the_source_alone(tmp_path: Path) -> None:
    """The weights are links, so the copy costs nothing and outlives the source's rotation."""
    source = make_checkpoint(tmp_path / "out" / "checkpoint-15", log_history=[{"loss": math.nan}])
    copy = tmp_path / "doctored"
    make_checkpoint(copy, step=9)  # left by an attempt that died
    rungs.doctor(source, copy, step=27)
    assert (rungs.step_of(source), rungs.step_of(copy), rungs.step_of(None)) == (15, 27, 0)
    assert (copy / "model.safetensors").samefile(source / "model.safetensors")
    assert "NaN" in (copy / "trainer_state.json").read_text()
    rungs.doctor(source, copy, step=27, keep=False)
    assert rungs.step_of(copy) == 27
    assert not source.exists()


def test_a_volume_without_hard_links_gets_symbolic_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some network disks refuse hard links."""

    def refuse(*_: Any) -> None:
        raise PermissionError

    monkeypatch.setattr("os.link", refuse)
    source = make_checkpoint(tmp_path / "checkpoint-15")
    rungs.doctor(source, tmp_path / "doctored", step=27)
    assert (tmp_path / "doctored" / "optimizer.pt").is_symlink()
    assert (rungs.step_of(source), rungs.step_of(tmp_path / "doctored")) == (15, 27)


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (lambda folder: None, True),
        (lambda folder: (folder / "optimizer.pt").unlink(), False),
        (lambda folder: (folder / "scheduler.pt").unlink(), False),
    ],
)
def test_optimizer_and_schedule_come_from_a_checkpoint_only_together(
    tmp_path: Path, spoil: Callable[[Path], None], found: bool
) -> None:
    """The trainer loads both or none."""
    folder = make_checkpoint(tmp_path / "checkpoint-15")
    spoil(folder)
    assert rungs.has_optimizer(folder) is found
    assert not rungs.has_optimizer(None)
