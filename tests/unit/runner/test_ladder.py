import pytest

from runner.attempts import AttemptFacts, CheckpointFact
from runner.ladder import NextAttempt, Stop, next_attempt, pick
from runner.settings import ResumeSettings


def _attempt(n: int = 1, outcome: str = "loss_spike", **facts: object) -> AttemptFacts:
    known = {"first_step": 1, "last_step": 24, "onset_step": 22, "alarm_step": 24, **facts}
    return AttemptFacts(n=n, outcome=outcome, reason=f"{outcome} in attempt {n}", **known)


def _checkpoints(*steps: int, health: str = "healthy") -> tuple[CheckpointFact, ...]:
    return tuple(CheckpointFact(step, health) for step in steps)


def test_after_a_spike_the_next_attempt_starts_before_the_onset() -> None:
    """H35: the newest checkpoint was saved after the onset, so an older one is taken."""
    plan = next_attempt([_attempt(checkpoints=_checkpoints(10, 15, 20, 25))], ResumeSettings())
    assert plan == NextAttempt(2, from_checkpoint=20, before=22, rung={"kind": "replay"})


def test_without_a_healthy_checkpoint_the_run_starts_over() -> None:
    """A spike before the first useful save costs the attempt, not the run."""
    plan = next_attempt([_attempt(checkpoints=_checkpoints(25))], ResumeSettings())
    assert isinstance(plan, NextAttempt)
    assert plan.from_checkpoint is None


def test_a_suspect_checkpoint_is_passed_over_after_an_alarm() -> None:
    """One saved while the detector already had doubts is not a way back."""
    facts = _attempt(checkpoints=_checkpoints(10) + _checkpoints(20, health="suspect"))
    assert pick(facts, before=22) == 10


def test_a_killed_trainer_goes_on_from_its_newest_checkpoint() -> None:
    """H32: without an alarm no checkpoint is doubtful for its step."""
    facts = _attempt(
        outcome="crash", onset_step=None, checkpoints=_checkpoints(15, 20, health="unrecorded")
    )
    assert pick(facts, before=None) == 20


@pytest.mark.parametrize(
    "outcome", ["config_error", "cancelled", "budget", "deadline", "no_capacity"]
)
def test_what_another_attempt_cannot_mend_ends_the_run(outcome: str) -> None:
    """Only troubles of the training itself are worth a rung."""
    assert next_attempt([_attempt(outcome=outcome)], ResumeSettings()) == Stop(
        f"{outcome} in attempt 1"
    )


@pytest.mark.parametrize("outcome", ["crash", "out_of_memory"])
def test_a_trainer_that_never_trained_a_step_is_not_tried_again(outcome: str) -> None:
    """H08: the data set or the settings are at fault, and there is no checkpoint to resume from."""
    facts = _attempt(outcome=outcome, first_step=None, last_step=None, onset_step=None)
    assert isinstance(next_attempt([facts], ResumeSettings()), Stop)


def test_the_attempts_are_bounded() -> None:
    """H33: a resume that fails again and again ends, with its number in the reason."""
    tried = [_attempt(n, last_step=20 + n, onset_step=20 + n) for n in (1, 2, 3)]
    plan = next_attempt(tried, ResumeSettings(max_attempts=2))
    assert isinstance(plan, Stop)
    assert "2 resumption(s) did not help" in plan.reason


def test_failing_twice_at_the_same_step_ends_the_run() -> None:
    """H33: no progress is no use, whatever max_attempts allows."""
    plan = next_attempt([_attempt(1), _attempt(2)], ResumeSettings())
    assert isinstance(plan, Stop)
    assert "no progress" in plan.reason


def test_resuming_can_be_switched_off() -> None:
    """The wish's own key decides."""
    plan = next_attempt([_attempt()], ResumeSettings(enabled=False))
    assert isinstance(plan, Stop)
    assert "switched off" in plan.reason


def test_a_resume_that_was_asked_for_counts_anew() -> None:
    """`axolotl-runner resume` goes on after any outcome, and the limit counts from there."""
    ended = [
        _attempt(1),
        _attempt(2, outcome="cancelled", onset_step=None, checkpoints=_checkpoints(20)),
    ]
    plan = next_attempt(ended, ResumeSettings(max_attempts=1), asked_after=2)
    assert plan == NextAttempt(3, from_checkpoint=20, before=None, rung={"kind": "replay"})
