"""Where the next attempt starts, and what stays in force."""

from __future__ import annotations

import pytest

from runner.attempts import AttemptFacts, CheckpointFact
from runner.batch import Batch
from runner.history import as_it_was, batch_in_force, kept, overrides, pick, start
from runner.report import Rung

REPLAY: Rung = {"kind": "replay"}
SKIP: Rung = {"kind": "skip", "first": 24, "last": 28}
RESET: Rung = {"kind": "scale", "learning_rate": 0.5, "moments": "reset"}
SMALLER: Rung = {
    "kind": "smaller_batch", "micro_batch_size": 4, "gradient_accumulation_steps": 2
}  # fmt: skip


def _attempt(n: int = 1, outcome: str = "loss_spike", **facts: object) -> AttemptFacts:
    known = {"first_step": 1, "last_step": 28, "onset_step": 24, "alarm_step": 28, **facts}
    return AttemptFacts(n=n, outcome=outcome, reason="a reason", **known)  # type: ignore[arg-type]


def _crash(n: int = 2, **facts: object) -> AttemptFacts:
    return _attempt(n, "crash", **{"onset_step": None, "alarm_step": None, **facts})


def _at(*steps: int, health: str = "healthy") -> tuple[CheckpointFact, ...]:
    return tuple(CheckpointFact(step, health, f"out/checkpoint-{step}") for step in steps)


@pytest.mark.parametrize(
    ("checkpoints", "before", "picked"),
    [
        (_at(10, 15, 20, 25), 24, 20),  # H35: the newest was saved after the onset
        (_at(25), 24, None),
        (_at(10) + _at(20, health="suspect"), 24, 10),
        (_at(15) + _at(20, health="unrecorded"), 24, 15),
        (_at(20, health="unrecorded"), 24, 20),
        (_at(15, 20), 21, 15),  # no loss was ever computed with the weights of 20
        (_at(20), 21, 20),
        (_at(15) + _at(20, health="unrecorded"), None, 20),  # H32: no alarm, so none is doubtful
        (_at(15) + _at(20, health="suspect"), None, 15),
        (_at(20, health="suspect"), None, 20),
        ((), None, None),
    ],
)
def test_the_checkpoint_is_picked_in_the_order_of_the_ledger(
    checkpoints: tuple[CheckpointFact, ...], before: int | None, picked: int | None
) -> None:
    """The pod, which sees the files, must not come to another result."""
    assert pick(_attempt(checkpoints=checkpoints), before) == picked


def test_an_attempt_that_died_without_a_word_hides_nothing() -> None:
    """Its facts hold no checkpoints; those of the attempt before it and its onset still count."""
    spike = _attempt(checkpoints=_at(15, 20))
    wordless = AttemptFacts(2, "crash", "no word from the pod")
    assert start([spike, wordless]) == (20, 24)


def test_a_crash_after_a_spike_starts_from_its_own_newest_checkpoint() -> None:
    """What it saved itself was trained from a healthy one."""
    crash = _crash(first_step=21, last_step=37, checkpoints=_at(15, 20, 30))
    assert start([_attempt(checkpoints=_at(15, 20)), crash]) == (30, None)


@pytest.mark.parametrize(
    ("attempts", "rung"),
    [
        ([_attempt(checkpoints=_at(20))], REPLAY),
        # cut off before or within the window: it is passed over again
        ([_attempt(), _crash(rung=SKIP, from_checkpoint=20, checkpoints=_at(20))], SKIP),
        (
            [_attempt(), _crash(rung=SKIP, from_checkpoint=20, checkpoints=_at(20, 25))],
            {"kind": "skip", "first": 26, "last": 28},
        ),
        # beyond it: done
        ([_attempt(), _crash(rung=SKIP, from_checkpoint=20, checkpoints=_at(20, 30))], REPLAY),
        # a later trouble that goes back behind the window
        (
            [
                _attempt(),
                _attempt(2, rung=SKIP, from_checkpoint=20, onset_step=60, checkpoints=_at(20, 55)),
                _attempt(3, rung=REPLAY, from_checkpoint=55, onset_step=54, checkpoints=_at(20)),
            ],
            SKIP,
        ),
        # the window was trained after all: a higher rung
        (
            [
                _attempt(),
                _attempt(2, rung=SKIP, from_checkpoint=20, checkpoints=_at(20)),
                _crash(3, rung={"kind": "scale", "learning_rate": 0.5}, from_checkpoint=20,
                       checkpoints=_at(20)),
            ],
            REPLAY,
        ),
        # moments are reset again when nothing was saved since, not otherwise
        ([_attempt(), _crash(rung=RESET, from_checkpoint=20, checkpoints=_at(20))], RESET),
        ([_attempt(), _crash(rung=RESET, from_checkpoint=20, checkpoints=_at(20, 25))], REPLAY),
    ],
)  # fmt: skip
def test_an_attempt_that_was_cut_off_is_done_again(
    attempts: list[AttemptFacts], rung: Rung
) -> None:
    """A crash does not undo the decision that led to the attempt."""
    assert as_it_was(attempts) == rung


def test_a_smaller_batch_stays_and_the_plan_is_pinned() -> None:
    """Later attempts have it too, whatever their rung."""
    attempts = [
        _crash(1, planned_steps=40),
        _crash(2, rung=SMALLER),
        _crash(3, rung=SKIP),
    ]
    assert batch_in_force(attempts) == Batch(4, 2)
    wanted = {"micro_batch_size": 4, "gradient_accumulation_steps": 2, "max_steps": 40}
    assert overrides(attempts, REPLAY) == wanted
    assert batch_in_force(attempts[:1]) is None
    assert overrides(attempts[:1], REPLAY) == {}
    assert overrides([_crash(1)], SMALLER) == {
        "micro_batch_size": 4, "gradient_accumulation_steps": 2
    }  # fmt: skip


@pytest.mark.parametrize(
    ("checkpoints", "where"),
    [
        (_at(15, 20, 25), "out/checkpoint-20"),
        ((CheckpointFact(20, "healthy", "kept/checkpoint-20"),), "kept/checkpoint-20"),
        ((CheckpointFact(20, "healthy"),), "out/checkpoint-20"),
        (_at(20, health="suspect"), None),
        ((), None),
    ],
)
def test_the_last_healthy_checkpoint_is_named(
    checkpoints: tuple[CheckpointFact, ...], where: str | None
) -> None:
    """What is left of a run that could not be brought to its end."""
    assert kept([_attempt(checkpoints=checkpoints)]) == where
