"""Schedules, the loop and the post-mortem, run in the trainer's environment by
test_trainer_side.py.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from axolotl.utils.schedulers import (
    JaggedLRRestartScheduler,
    RexLR,
    get_cosine_schedule_with_min_lr,
    get_cosine_schedule_with_quadratic_warmup,
    get_cosine_schedule_with_warmup_decay_constant,
)
from torch.optim.lr_scheduler import LRScheduler, OneCycleLR
from torch.utils.data import BatchSampler, DataLoader
from transformers import get_scheduler

from pod import events, postmortem, rungs
from pod.callback import LossSpike, RunnerCallback, SavedForSkip
from pod.loop import TrainingLoop
from pod.reporter import Reporter
from pod.rundir import RunDir, write_json
from pod.spikes import Alarm
from tests.e2e.side_checks import check, run_checks

RATE, STEPS, WARMUP = 0.1, 40, 4

# ------------------------------------------------------------------------------ schedules


def named(name: str, **options: Any) -> Callable[[Any], LRScheduler]:
    """One of the trainer's own schedules."""
    return lambda optimizer: get_scheduler(
        name, optimizer, WARMUP, STEPS, scheduler_specific_kwargs=options or None
    )


SCHEDULES: dict[str, Callable[[Any], LRScheduler]] = {
    **{
        name: named(name)
        for name in ("linear", "cosine", "constant", "constant_with_warmup", "polynomial")
    },
    "cosine_with_restarts": named("cosine_with_restarts", num_cycles=3),
    "cosine_with_min_lr": named("cosine_with_min_lr", min_lr_rate=0.1),
    "inverse_sqrt": named("inverse_sqrt"),
    "warmup_stable_decay": named(
        "warmup_stable_decay", num_decay_steps=10, num_stable_steps=STEPS - WARMUP - 10
    ),
    "rex": lambda o: RexLR(o, RATE, RATE / 10, total_steps=STEPS, num_warmup_steps=WARMUP),
    "one_cycle": lambda o: OneCycleLR(o, max_lr=RATE, total_steps=STEPS, pct_start=0.1),
    "axolotl_min_lr": lambda o: get_cosine_schedule_with_min_lr(o, WARMUP, STEPS, 0.1),
    "axolotl_quadratic": lambda o: get_cosine_schedule_with_quadratic_warmup(o, WARMUP, STEPS),
    "axolotl_constant": lambda o: get_cosine_schedule_with_warmup_decay_constant(
        o, WARMUP, STEPS, 0.7, 0.1
    ),
    "jagged": lambda o: JaggedLRRestartScheduler(o, named("cosine")(o), 12, 3, 2, 0.01),
}


def make(name: str) -> tuple[torch.optim.AdamW, LRScheduler]:
    """An optimizer and its schedule, new."""
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.AdamW([weight], lr=RATE, weight_decay=0.1)
    return optimizer, SCHEDULES[name](optimizer)


def rates(optimizer: Any, schedule: Any, steps: int) -> list[float]:
    """The rate of each of the coming steps."""
    found = []
    for _ in range(steps):
        found.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        schedule.step()
    return found


def resumed(name: str, at: int) -> tuple[torch.optim.AdamW, LRScheduler]:
    """As after a resume at step `at`: new objects that have loaded the old ones' state."""
    old, old_schedule = make(name)
    rates(old, old_schedule, at)
    optimizer, schedule = make(name)
    optimizer.load_state_dict(old.state_dict())
    schedule.load_state_dict(old_schedule.state_dict())
    return optimizer, schedule


@check
def every_schedule_is_scaled_at_every_later_step() -> None:
    """The factor holds to the end, and is taken back exactly."""
    for name in SCHEDULES:
        whole = rates(*make(name), STEPS - 1)
        state = SimpleNamespace(stateful_callbacks={})
        optimizer, schedule = resumed(name, 15)
        rungs.apply_factors(rungs.Factors(0.5), state, optimizer, schedule, loaded=True)
        last = schedule.get_last_lr()[0]
        assert math.isclose(last, 0.5 * whole[15], rel_tol=1e-6), (name, last, whole[15])
        close(name, rates(optimizer, schedule, 10), [0.5 * rate for rate in whole[15:25]])
        rungs.apply_factors(rungs.Factors(), state, optimizer, schedule, loaded=True)
        close(name, rates(optimizer, schedule, 10), whole[25:35])


@check
def every_schedule_is_moved_on() -> None:
    """After a skip the rate is what it would have been; with a factor too."""
    for name in SCHEDULES:
        whole = rates(*make(name), STEPS - 1)
        optimizer, schedule = resumed(name, 15)
        rungs.advance_schedule(schedule, 7)
        state = SimpleNamespace(stateful_callbacks={})
        rungs.apply_factors(rungs.Factors(0.5), state, optimizer, schedule, loaded=True)
        close(name, rates(optimizer, schedule, 10), [0.5 * rate for rate in whole[22:32]])


def close(name: str, found: list[float], wanted: list[float]) -> None:
    """Equal but for rounding."""
    near = (math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9) for a, b in zip(found, wanted))  # noqa: B905
    assert all(near), (name, found, wanted)


# ------------------------------------------------------------------------------ the loop


class FakeTrainer:
    """The part of a trainer that the loop and the callback touch; each pass runs the next script
    entry.
    """

    def __init__(self, folder: Path, script: list[Callable[[FakeTrainer], Any]]) -> None:
        self.args = SimpleNamespace(
            world_size=1,
            max_steps=40,
            logging_steps=1,
            save_steps=5,
            output_dir=str(folder / "out"),
            eval_on_start=True,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=1,
        )
        self.model = torch.nn.Linear(2, 2)
        self.is_deepspeed_enabled = self.is_fsdp_enabled = False
        self.counter = SimpleNamespace(violations=2)
        self.callback_handler = SimpleNamespace(callbacks=[self.counter], train_dataloader=None)
        self.script = script
        self.started_from: list[str | None] = []

    def train(self, resume_from_checkpoint: str | None = None) -> Any:
        self.started_from.append(resume_from_checkpoint)
        return self.script.pop(0)(self)


class Clock:
    """Time that passes only by sleeping; `during` is called at each sleep."""

    def __init__(self, during: Callable[[], None]) -> None:
        self.now = 0.0
        self.during = during

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.during()


def spike(trainer: FakeTrainer) -> Any:
    """A pass that ends by an alarm."""
    callback: RunnerCallback = trainer.callback  # type: ignore[attr-defined]
    callback._raise(Alarm(24, 26, "jump", "up"), logging_steps=1)


def run(
    folder: Path,
    script: list[Callable[[FakeTrainer], Any]],
    during: Callable[[], None] = lambda: None,
    *,
    warm_seconds: float = 60,
    can_rewind: bool = True,
    checkpoint: Path | None = None,
    **attempt: Any,
) -> tuple[FakeTrainer, Any]:
    """Run the loop over a script; returns the trainer, and what came out or was raised."""
    trainer = FakeTrainer(folder, script)
    given = {"attempt": 1, "warm_seconds": warm_seconds, **attempt}
    reporter = Reporter(RunDir(folder), given)
    callback = RunnerCallback(reporter, trainer, can_rewind=can_rewind)
    trainer.callback = callback  # type: ignore[attr-defined]
    clock = Clock(during)
    loop = TrainingLoop(trainer.train, callback, clock=clock, sleep=clock.sleep)
    try:
        return trainer, loop(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    except LossSpike as error:
        return trainer, error


def make_checkpoint(folder: Path, step: int) -> Path:
    """Files enough to be gone back to."""
    checkpoint = folder / "out" / f"checkpoint-{step}"
    checkpoint.mkdir(parents=True)
    (checkpoint / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    for name in rungs.OPTIMIZER_FILES:
        (checkpoint / name).write_bytes(b"")
    return checkpoint


def kinds(folder: Path) -> list[str]:
    """What was told, in order."""
    return [event["kind"] for event in events.read(RunDir(folder).events)[0]]


def command(folder: Path, cmd: str, *, attempt: int, checkpoint: Path, noted: int = 2) -> None:
    """What the flow of the coming attempt writes."""
    run_dir = RunDir(folder)
    write_json(run_dir.attempt_file, {"attempt": noted, "from_checkpoint": 20})
    write_json(
        run_dir.control,
        {"seq": 1, "cmd": cmd, "attempt": attempt, "checkpoint": str(checkpoint)},
    )


@check
def a_rewind_enters_again_under_the_coming_attempt() -> None:
    """`rewound`, then `armed`; what the pass before left is cleared away."""
    folder = Path(tempfile.mkdtemp())
    checkpoint = make_checkpoint(folder, 20)
    trainer, result = run(
        folder,
        [spike, lambda _: "trained"],
        lambda: command(folder, "rewind", attempt=2, checkpoint=checkpoint),
    )
    assert result == "trained", result
    assert trainer.started_from == [None, str(checkpoint)]
    assert kinds(folder) == ["alarm", "rewound", "armed"], kinds(folder)
    told = events.read(RunDir(folder).events)[0]
    assert [event["attempt"] for event in told] == [1, 2, 2]
    assert told[0]["waiting"] is True
    assert (told[1]["seq"], told[1]["from_checkpoint"], told[1]["step"]) == (1, 20, 20)
    assert (trainer.args.eval_on_start, trainer.counter.violations) == (False, 0)


@check
def another_command_ends_the_process() -> None:
    """It is answered, and done."""
    folder = Path(tempfile.mkdtemp())
    checkpoint = make_checkpoint(folder, 20)
    _, error = run(
        folder, [spike], lambda: command(folder, "stop", attempt=2, checkpoint=checkpoint)
    )
    assert isinstance(error, LossSpike)
    answer = events.read(RunDir(folder).events)[0][1]
    assert (answer["kind"], answer["cmd"], answer["done"]) == ("decision", "stop", True)


@check
def a_rewind_that_cannot_be_done_ends_the_process() -> None:
    """Where the checkpoint lacks its optimizer, or attempt.json is another attempt's."""
    for noted, spoiled in ((2, "optimizer.pt"), (3, None), (2, "trainer_state.json")):
        folder = Path(tempfile.mkdtemp())
        checkpoint = make_checkpoint(folder, 20)
        if spoiled:
            (checkpoint / spoiled).unlink()

        def order(folder: Path = folder, path: Path = checkpoint, noted: int = noted) -> None:
            command(folder, "rewind", attempt=2, checkpoint=path, noted=noted)

        _, error = run(folder, [spike], order)
        assert isinstance(error, LossSpike), (noted, spoiled)
        answer = events.read(RunDir(folder).events)[0][1]
        assert (answer["cmd"], answer["done"]) == ("rewind", False), answer


@check
def without_a_decision_the_process_ends_in_time() -> None:
    """It waits `warm_seconds`, or not at all where it could not go back; then says what it can."""
    for seconds, can_rewind, waiting in ((60, True, True), (0, True, False), (60, False, False)):
        folder = Path(tempfile.mkdtemp())
        _, error = run(folder, [spike], warm_seconds=seconds, can_rewind=can_rewind)
        assert isinstance(error, LossSpike)
        alarm, after = events.read(RunDir(folder).events)[0]
        assert alarm["waiting"] is waiting
        assert (after["kind"], after["of_attempt"], after["rows"]) == ("postmortem", 1, [])


@check
def a_window_is_skipped_from_the_step_before_it() -> None:
    """First the steps up to the window, then a copy that says that the window is done."""
    folder = Path(tempfile.mkdtemp())
    checkpoint = make_checkpoint(folder, 20)

    def to_the_window(trainer: FakeTrainer) -> Any:
        callback: RunnerCallback = trainer.callback  # type: ignore[attr-defined]
        assert callback.entry.leave_at == 23
        raise SavedForSkip(make_checkpoint(folder, 23))

    def past_the_window(trainer: FakeTrainer) -> Any:
        callback: RunnerCallback = trainer.callback  # type: ignore[attr-defined]
        assert callback.entry.skipped == rungs.Skip(24, 27)
        assert rungs.step_of(callback.entry.checkpoint) == 27
        return "trained"

    rung = {"kind": "skip", "first": 24, "last": 27}
    _, result = run(
        folder, [to_the_window, past_the_window], checkpoint=checkpoint, attempt=2, rung=rung
    )
    assert result == "trained", result
    assert rungs.step_of(folder / "out" / "checkpoint-23") == 23


@check
def where_no_second_pass_is_possible_more_is_skipped() -> None:
    """From the checkpoint on; beyond the plan there is nothing to skip; a later one is past it."""
    for first, last, wanted in ((24, 27, (21, 27)), (21, 99, (21, 40)), (5, 20, None)):
        folder = Path(tempfile.mkdtemp())
        checkpoint = make_checkpoint(folder, 20)
        rung = {"kind": "skip", "first": first, "last": last}

        def see(trainer: FakeTrainer, wanted: tuple[int, int] | None = wanted) -> Any:
            callback: RunnerCallback = trainer.callback  # type: ignore[attr-defined]
            skipped = callback.entry.skipped
            assert (skipped and (skipped.first, skipped.last)) == wanted, skipped

        run(folder, [see], checkpoint=checkpoint, attempt=2, rung=rung, can_rewind=False)


# ------------------------------------------------------------------------------ the post-mortem


@check
def a_failing_post_mortem_harms_nothing() -> None:
    """It costs a line in the log; the random numbers go on as if nothing had been."""
    trainer = FakeTrainer(Path(tempfile.mkdtemp()), [])
    window = postmortem.Window(1, 1, 2, 2)
    torch.manual_seed(1)
    wanted = torch.rand(3)
    torch.manual_seed(1)

    class Broken:
        batch_sampler: Any = property(lambda self: torch.rand(5) / None)  # type: ignore

    trainer.callback_handler.train_dataloader = Broken()
    assert postmortem.examine(trainer, window) == []
    assert torch.equal(torch.rand(3), wanted)


@check
def rows_in_an_order_that_is_not_known_are_not_named() -> None:
    """A wrong name would be worse than none."""
    trainer = FakeTrainer(Path(tempfile.mkdtemp()), [])
    numbers = list(range(12))
    loader = DataLoader(numbers, batch_size=3, shuffle=True)  # type: ignore[arg-type,var-annotated]
    trainer.callback_handler.train_dataloader = loader
    assert postmortem.rows_of_steps(trainer, 1, 2) == []
    ordered = DataLoader(
        numbers,  # type: ignore[arg-type]
        batch_sampler=BatchSampler(torch.utils.data.SequentialSampler(numbers), 3, False),
    )
    ordered.set_epoch = lambda _: None  # type: ignore[attr-defined]
    trainer.callback_handler.train_dataloader = ordered
    trainer.args.gradient_accumulation_steps = 3
    found = postmortem.rows_of_steps(trainer, 2, 3)
    assert found == [(2, 9), (2, 10), (2, 11), *((3, i) for i in range(9))], found


if __name__ == "__main__":
    run_checks()
