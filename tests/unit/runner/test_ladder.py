"""What follows an attempt: which rung, from where, or why nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from runner.attempts import AttemptFacts, CheckpointFact
from runner.batch import Batch
from runner.diagnosis import diagnose
from runner.errors import Outcome
from runner.ladder import FIRST, MOST_PODS_LOST, NextAttempt, Stop, next_attempt
from runner.report import Rung
from runner.settings import ResumeSettings

REPLAY: Rung = {"kind": "replay"}
HALF: Rung = {"kind": "scale", "learning_rate": 0.5}


def _spike(n: int = 1, onset: int = 24, alarm: int = 28, **facts: Any) -> AttemptFacts:
    known = {"first_step": 21 if n > 1 else 1, "last_step": alarm, "from_checkpoint": None}
    known |= {"checkpoints": _at(15, 20), "planned_steps": 40, **facts}
    outcome = known.pop("outcome", "loss_spike")
    return AttemptFacts(
        n=n, outcome=outcome, reason=f"{outcome} in attempt {n}", onset_step=onset,
        alarm_step=alarm, **known,
    )  # fmt: skip


def _end(n: int, outcome: str, **facts: Any) -> AttemptFacts:
    known = {"first_step": 21 if n > 1 else 1, "last_step": 22, "checkpoints": _at(15, 20)}
    known |= {"planned_steps": 40, **facts}
    reason = known.pop("reason", f"{outcome} in attempt {n}")
    return AttemptFacts(n=n, outcome=outcome, reason=reason, **known)  # type: ignore[arg-type]


def _at(*steps: int) -> tuple[CheckpointFact, ...]:
    return tuple(CheckpointFact(step, "healthy", f"out/checkpoint-{step}") for step in steps)


def _ladder(*rungs: Any, most: int = 10) -> ResumeSettings:
    return ResumeSettings.model_validate({"ladder": list(rungs), "max_attempts": most})


def _climb(
    settings: ResumeSettings, *ends: AttemptFacts, batch: Batch | None = None
) -> list[Rung | str]:
    """The rungs of the attempts that follow `ends` one by one, each doing what was decided."""
    done: list[AttemptFacts] = []
    said: list[Rung | str] = []
    plan = FIRST
    for end in ends:
        facts = {**end.__dict__, "n": plan.n, "rung": plan.rung}
        facts["from_checkpoint"] = plan.from_checkpoint
        done.append(AttemptFacts(**facts))
        decided = next_attempt(done, settings, batch=batch)
        if isinstance(decided, Stop):
            said.append(decided.reason)
            break
        plan = decided
        said.append(plan.rung or {})
    return said


# ------------------------------------------------------------------ the ladder


def test_after_a_spike_the_next_attempt_starts_before_the_onset() -> None:
    """H35: the newest checkpoint was saved after the onset, so an older one is taken."""
    plan = next_attempt([_spike(checkpoints=_at(10, 15, 20, 25))], ResumeSettings())
    assert isinstance(plan, NextAttempt)
    assert (plan.n, plan.from_checkpoint, plan.before, plan.rung) == (2, 20, 24, REPLAY)
    assert plan.why == "loss_spike in attempt 1"
    assert plan.what == "from checkpoint 20: replay"
    assert not plan.last


def test_without_a_healthy_checkpoint_the_run_starts_over() -> None:
    """A spike before the first useful save costs the attempt, not the run."""
    plan = next_attempt([_spike(checkpoints=_at(25))], ResumeSettings())
    assert isinstance(plan, NextAttempt)
    assert plan.from_checkpoint is None
    assert plan.what == "from the start: replay"


@pytest.mark.parametrize("outcome", ["loss_spike", "nonfinite", "collapse"])
def test_a_trouble_that_comes_back_climbs_the_default_ladder(outcome: str) -> None:
    """Replay, skip, half the learning rate; then the end, and what was tried."""
    same = [_spike(outcome=outcome) for _ in range(4)]
    *rungs, end = _climb(ResumeSettings(), *same)
    assert rungs == [REPLAY, {"kind": "skip", "first": 23, "last": 28}, HALF]
    assert end == (
        f"{outcome} in attempt 1; no rung of the ladder helped "
        "(tried: replay; skipping steps 23-28; learning_rate x0.5)"
    )


@pytest.mark.parametrize(
    ("ladder", "ends", "rungs"),
    [
        # somewhere else, after progress: from the first rung again, factors stay
        (
            ["replay", "skip", {"learning_rate": "x0.5"}],
            [_spike(), _spike(), _spike(onset=60, alarm=64), _spike(onset=60, alarm=64)],
            [
                REPLAY,
                {"kind": "skip", "first": 23, "last": 28},
                {"kind": "skip", "first": 23, "last": 28},  # as it was: 20 lies before the window
                {"kind": "skip", "first": 59, "last": 64},
            ],
        ),
        # a crash, a hang and a lost pod are no evidence about a rung: the same again
        (
            ["replay", "skip"],
            [_spike(), _end(2, "crash"), _spike(), _end(4, "preempted"), _end(5, "hang")],
            [
                REPLAY,
                REPLAY,
                {"kind": "skip", "first": 23, "last": 28},
                {"kind": "skip", "first": 23, "last": 28},
                {"kind": "skip", "first": 23, "last": 28},
            ],
        ),
        # a window that did not help grows over all that went wrong
        (
            ["skip", "skip"],
            [_spike(), _spike(onset=30, alarm=33, checkpoints=_at(20, 25))],
            [
                {"kind": "skip", "first": 23, "last": 28},
                {"kind": "skip", "first": 26, "last": 33},
            ],
        ),
        # the checkpoint is the step before the onset: nothing before it can be skipped
        (["skip"], [_spike(onset=21)], [{"kind": "skip", "first": 20, "last": 28}]),
        (
            ["skip"],
            [_spike(onset=21, checkpoints=_at(20))],
            [{"kind": "skip", "first": 21, "last": 28}],
        ),
        (
            ["skip"],
            [_spike(onset=1, alarm=4, checkpoints=())],
            [{"kind": "skip", "first": 1, "last": 4}],
        ),
        # factors are absolute; one in force already is applied once more
        (
            [{"learning_rate": "x0.5"}, {"learning_rate": "x0.25"}, {"weight_decay": "x2"}],
            [_spike(), _spike(), _spike()],
            [
                HALF,
                {"kind": "scale", "learning_rate": 0.25},
                {"kind": "scale", "learning_rate": 0.25, "weight_decay": 2.0},
            ],
        ),
        (
            [{"learning_rate": "x0.5", "moments": "reset"}],
            [_spike(), _spike(onset=90, alarm=94)],
            [
                {**HALF, "moments": "reset"},
                {"kind": "scale", "learning_rate": 0.25, "moments": "reset"},
            ],
        ),
        # a replay further up is a plain one
        (
            ["skip", "replay"],
            [_spike(), _spike()],
            [{"kind": "skip", "first": 23, "last": 28}, REPLAY],
        ),
    ],
)
def test_the_ladder_is_climbed(
    ladder: list[Any], ends: list[AttemptFacts], rungs: list[Rung]
) -> None:
    """Each rung follows from the attempts' facts alone."""
    assert _climb(_ladder(*ladder), *ends) == rungs


def test_factors_stay_in_force_for_all_later_attempts() -> None:
    """The plugin applies what is wanted over what the checkpoint has, so it is never twice."""
    done = [_spike(1), _spike(2, rung=HALF), _end(3, "crash", rung=REPLAY)]
    plan = next_attempt(done, _ladder("replay"))
    assert isinstance(plan, NextAttempt)
    assert plan.rung == REPLAY
    assert plan.factors == {"learning_rate": 0.5, "weight_decay": 1.0}


# ------------------------------------------------------------------ out of memory


def test_out_of_memory_halves_the_micro_batch_down_to_1_and_then_ends() -> None:
    """H33: the same effective batch and the same plan; at 1 the step that does not fit is named."""
    ends = [_end(n, "out_of_memory", last_step=100, checkpoints=_at(100)) for n in range(1, 5)]
    *rungs, end = _climb(ResumeSettings(max_attempts=9), *ends, batch=Batch(8, 1))
    assert [(rung["micro_batch_size"], rung["gradient_accumulation_steps"]) for rung in rungs] == [
        (4, 2), (2, 4), (1, 8)
    ]  # fmt: skip
    assert end == "resume fails with out of memory at step 101: micro_batch_size is 1 already"


def test_a_smaller_batch_pins_the_plan_and_stays() -> None:
    """What axolotl is given from now on, also after a crash of the next attempt."""
    done = [_end(1, "out_of_memory")]
    plan = next_attempt(done, ResumeSettings(), batch=Batch(8, 1))
    assert isinstance(plan, NextAttempt)
    wanted = {"micro_batch_size": 4, "gradient_accumulation_steps": 2, "max_steps": 40}
    assert plan.overrides == wanted
    assert plan.why == "out of memory at step 23"
    done.append(_end(2, "crash", rung=plan.rung, last_step=30))
    after = next_attempt(done, ResumeSettings(), batch=Batch(8, 1))
    assert isinstance(after, NextAttempt)
    assert after.overrides == wanted


def test_out_of_memory_on_resume_alone_ends_with_the_step_named() -> None:
    """H33: a spike at step 100, then each resumed run fails at 101 with one row at once."""
    spike = _spike(1, onset=101, alarm=104, checkpoints=_at(90, 100))
    full = _end(
        2, "out_of_memory", first_step=None, last_step=None, from_checkpoint=100,
        checkpoints=_at(90, 100),
    )  # fmt: skip
    plan = next_attempt([spike, full], ResumeSettings(), batch=Batch(1, 4))
    assert isinstance(plan, Stop)
    assert plan.reason == (
        "resume fails with out of memory at step 101: micro_batch_size is 1 already"
    )
    assert plan.kept == "out/checkpoint-90"


def test_before_the_first_step_a_smaller_batch_is_tried_too() -> None:
    """The first batch did not fit: there is no checkpoint, and no need for one."""
    full = _end(1, "out_of_memory", first_step=None, last_step=None, checkpoints=())
    plan = next_attempt([full], ResumeSettings(), batch=Batch(8, 1))
    assert isinstance(plan, NextAttempt)
    assert plan.what == "from the start: micro_batch_size 4, gradient_accumulation_steps 2"
    assert plan.why == "out of memory at step 1"


def test_a_model_that_does_not_fit_is_tried_twice_only() -> None:
    """While it is loaded no batch is in play; loading costs minutes each time."""
    full = {"first_step": None, "last_step": None, "checkpoints": (), "planned_steps": None}
    ends = [_end(n, "out_of_memory", **full) for n in (1, 2)]
    rung, end = _climb(ResumeSettings(), *ends, batch=Batch(8, 1))
    assert isinstance(rung, dict)
    assert end == (
        "resume fails with out of memory before the training began: a smaller batch did not help, "
        "the model itself does not fit"
    )


def test_a_window_to_skip_is_not_forgotten_when_memory_runs_out() -> None:
    """The resumed attempt did not fit before it came to the window."""
    ends = [
        _spike(),
        _spike(),
        _end(3, "out_of_memory", first_step=None, last_step=None),
    ]
    rungs = _climb(ResumeSettings(), *ends, batch=Batch(8, 1))
    assert rungs[-1] == {
        "kind": "skip", "first": 23, "last": 28,
        "micro_batch_size": 4, "gradient_accumulation_steps": 2,
    }  # fmt: skip


def test_it_is_said_when_the_batch_can_not_be_halved_exactly() -> None:
    """7 rows at once become 1."""
    plan = next_attempt([_end(1, "out_of_memory")], ResumeSettings(), batch=Batch(7, 1))
    assert isinstance(plan, NextAttempt)
    assert "a micro batch of 3 can't make up the effective batch of 7" in plan.why


# ------------------------------------------------------------------ the end


@pytest.mark.parametrize(
    "outcome", ["config_error", "cancelled", "budget", "deadline", "no_capacity"]
)
def test_what_another_attempt_cannot_mend_ends_the_run(outcome: str) -> None:
    """Only troubles of the training itself are worth a rung."""
    assert next_attempt([_end(1, outcome)], ResumeSettings()) == Stop(f"{outcome} in attempt 1")


def test_a_trainer_that_never_trained_a_step_is_not_tried_again() -> None:
    """H08: the data set or the settings are at fault, and there is no checkpoint to resume from."""
    facts = _end(1, "crash", first_step=None, last_step=None, checkpoints=())
    assert next_attempt([facts], ResumeSettings()) == Stop("crash in attempt 1")


def test_a_resumed_trainer_that_dies_while_it_loads_is_tried_once_more() -> None:
    """An attempt before it has trained, so the settings are good."""
    dead = _end(2, "crash", first_step=None, last_step=None)
    plan = next_attempt([_spike(), dead], ResumeSettings())
    assert isinstance(plan, NextAttempt)
    assert (plan.from_checkpoint, plan.before) == (20, 24)
    again = _end(3, "crash", first_step=None, last_step=None)
    assert isinstance(next_attempt([_spike(), dead, again], ResumeSettings()), Stop)


def test_the_attempts_are_bounded_whatever_their_troubles() -> None:
    """The reason says how often it was tried, and what."""
    ends = [_spike(), _spike(onset=60, alarm=64), _end(3, "crash", last_step=80)]
    *_, end = _climb(ResumeSettings(max_attempts=2), *ends)
    assert end == "crash in attempt 3; 2 resumption(s) did not help (tried: replay; replay)"


def test_the_last_attempt_that_is_allowed_knows_it() -> None:
    """Its trainer need not wait after an alarm: nobody would send it back."""
    plan = next_attempt([_spike()], ResumeSettings(max_attempts=1))
    assert isinstance(plan, NextAttempt)
    assert plan.last


def test_hanging_twice_at_the_same_step_ends_the_run() -> None:
    """Also twice while loading (H25); elsewhere it goes on."""
    said = "no step for 612 s at step 22 while training"
    ends = [_end(1, "hang"), _end(2, "hang", reason=said)]
    plan = next_attempt(ends, ResumeSettings())
    assert isinstance(plan, Stop)
    assert plan.reason == f"{said}; no progress: attempt 2 ended where attempt 1 did"
    nowhere = {"first_step": None, "last_step": None, "checkpoints": ()}
    loading = [_end(1, "hang", **nowhere), _end(2, "hang", **nowhere)]
    assert isinstance(next_attempt(loading[:1], ResumeSettings()), NextAttempt)
    assert isinstance(next_attempt(loading, ResumeSettings()), Stop)
    later = [_end(1, "hang"), _end(2, "hang", last_step=33)]
    assert isinstance(next_attempt(later, ResumeSettings()), NextAttempt)


def test_crashing_twice_at_the_same_step_ends_the_run() -> None:
    """No progress is no use, whatever max_attempts allows."""
    plan = next_attempt([_end(1, "crash"), _end(2, "crash")], ResumeSettings())
    assert isinstance(plan, Stop)
    assert "no progress: attempt 2 ended where attempt 1 did" in plan.reason


def test_a_full_disk_is_not_trained_on() -> None:
    """H41: the next save would fail as well; what is there is kept and named."""
    facts = _end(1, "crash", reason="disk full at step 22 of 40: no space left for checkpoints")
    plan = next_attempt([facts], ResumeSettings())
    assert isinstance(plan, Stop)
    assert plan.reason.startswith("disk full at step 22")
    assert plan.kept == "out/checkpoint-20"


@pytest.mark.parametrize(
    ("outcome", "line"),
    [
        ("crash", "OSError: You are trying to access a gated repo."),
        ("hang", "wandb: ERROR run me/x was previously created and deleted; try a new run name"),
    ],
)
def test_what_no_attempt_can_mend_is_not_tried_again(outcome: Outcome, line: str) -> None:
    """H08, H43: it got no step further, and won't on another machine; what was healthy is named."""
    why = diagnose(outcome, "x", line)
    failed = _end(2, outcome, first_step=None, last_step=None, diagnosis=why)
    plan = next_attempt([_spike(), failed], ResumeSettings())
    assert isinstance(plan, Stop)
    assert (plan.reason, plan.kept) == (failed.reason, "out/checkpoint-20")


def test_what_may_pass_by_itself_is_tried_again() -> None:
    """A hub that was down, for an attempt that has something to go on from."""
    why = diagnose("crash", "x", "HTTP Error 503 thrown while requesting HEAD http://hub/x")
    failed = _end(2, "crash", first_step=None, last_step=None, diagnosis=why)
    assert isinstance(next_attempt([_spike(), failed], ResumeSettings()), NextAttempt)


def test_resuming_can_be_switched_off() -> None:
    """The wish's own key decides."""
    plan = next_attempt([_spike()], ResumeSettings(enabled=False))
    assert isinstance(plan, Stop)
    assert "switched off" in plan.reason
    assert plan.kept == "out/checkpoint-20"


def test_a_resume_that_was_asked_for_counts_anew() -> None:
    """`axolotl-runner resume` goes on after any outcome; limit and ladder begin anew."""
    ended = [_spike(1), _end(2, "cancelled", rung=HALF)]
    plan = next_attempt(ended, ResumeSettings(max_attempts=1), asked_after=2)
    assert isinstance(plan, NextAttempt)
    assert (plan.n, plan.from_checkpoint, plan.before, plan.rung) == (3, 20, None, REPLAY)
    assert plan.factors["learning_rate"] == 0.5
    ended.append(_spike(3))
    again = next_attempt(ended, ResumeSettings(max_attempts=1), asked_after=2)
    assert isinstance(again, NextAttempt)
    assert again.rung == REPLAY


def test_a_lost_pod_costs_no_resumption() -> None:
    """It says nothing about the training, which goes on as it was, on another pod."""
    done = [_spike(1), *(_end(n, "preempted", first_step=21) for n in (2, 3, 4))]
    plan = next_attempt(done, ResumeSettings(max_attempts=1))
    assert isinstance(plan, NextAttempt)
    assert (plan.n, plan.rung) == (5, REPLAY)
    assert plan.what == "from the newest stored checkpoint, on another pod: replay"
    assert plan.before is None, "what it trained since the spike was healthy"


def test_pods_that_are_lost_one_after_the_other_end_the_run() -> None:
    """A market in which nothing lasts is no place to train."""
    done = [_end(n, "preempted", first_step=1) for n in range(1, MOST_PODS_LOST + 2)]
    plan = next_attempt(done, ResumeSettings())
    assert isinstance(plan, Stop)
    assert f"{MOST_PODS_LOST + 1} pods were lost" in plan.reason


ENDS = some.builds(
    _end,
    some.just(1),
    some.sampled_from(["loss_spike", "nonfinite", "crash", "hang", "preempted", "out_of_memory"]),
    first_step=some.one_of(some.none(), some.just(21)),
    last_step=some.one_of(some.none(), some.integers(21, 40)),
    onset_step=some.one_of(some.none(), some.integers(1, 40)),
    checkpoints=some.sampled_from([(), _at(10), _at(10, 20), _at(39)]),
)


@given(ends=some.lists(ENDS, min_size=1, max_size=12), most=some.integers(1, 6))
def test_whatever_happens_the_attempts_are_bounded_and_make_sense(
    ends: list[AttemptFacts], most: int
) -> None:
    """No history leads to an endless run, an impossible window or a batch of nothing."""
    settings = ResumeSettings(max_attempts=most)
    done: list[AttemptFacts] = []
    plan = FIRST
    for end in ends:
        told = {"n": plan.n, "rung": plan.rung, "from_checkpoint": plan.from_checkpoint}
        done.append(replace(end, **told))  # type: ignore[arg-type]
        decided = next_attempt(done, settings, batch=Batch(6, 2))
        if isinstance(decided, Stop):
            return
        lost = sum(each.outcome == "preempted" for each in done)
        assert decided.n == plan.n + 1 <= most + 1 + lost
        plan = decided
        rung = plan.rung or {}
        if rung["kind"] == "skip":
            first, last = int(str(rung["first"])), int(str(rung["last"]))
            assert (plan.from_checkpoint or 0) < first <= last
        if plan.overrides:
            batch = plan.overrides
            assert batch["micro_batch_size"] * batch["gradient_accumulation_steps"] == 12
        assert 0 < plan.factors["learning_rate"] <= 1
