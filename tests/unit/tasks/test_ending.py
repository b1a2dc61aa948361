import signal
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from prefect.exceptions import TerminationSignal

from runner.errors import NoCapacity, Outcome, TrainingFailed
from tasks import ending
from tasks.ending import ApiLost, End
from tasks.run import Run

RUN = Run("run", "x.yml", None, datetime(2026, 1, 1, tzinfo=UTC))


@pytest.fixture
def finished(monkeypatch: pytest.MonkeyPatch) -> list[End]:
    """How the run was ended, if it was."""
    seen: list[End] = []
    monkeypatch.setattr(ending, "finish", lambda run, end: seen.append(end))
    return seen


def _steps_that(error: BaseException) -> object:
    def steps(run: Run) -> None:
        raise error

    return steps


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (NoCapacity("local: full"), End("no_capacity", "local: full")),
        (TrainingFailed("loss_spike", "it jumped"), End("loss_spike", "it jumped")),
        (ZeroDivisionError("a bug"), End("crash", "ZeroDivisionError: a bug")),
    ],
)
def test_an_error_decides_the_outcome(error: Exception, end: End) -> None:
    """Also one of our own: a bug must not leave a pod behind."""
    assert ending._outcome(RUN, _steps_that(error)) == end  # type: ignore[arg-type]


def test_a_process_that_is_told_to_stop_tears_nothing_down(
    finished: list[End], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A revived parent wants its pod back."""
    monkeypatch.setattr(ending, "is_cancelling", lambda run_id: False)
    with pytest.raises(TerminationSignal):
        ending._outcome(RUN, _steps_that(TerminationSignal(signal.SIGTERM)))  # type: ignore[arg-type]
    assert finished == []


def test_a_cancelled_run_is_ended_before_the_signal_goes_on(
    finished: list[End], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server says Cancelling: the user wants it over."""
    monkeypatch.setattr(ending, "is_cancelling", lambda run_id: True)
    with pytest.raises(TerminationSignal):
        ending._outcome(RUN, _steps_that(TerminationSignal(signal.SIGTERM)))  # type: ignore[arg-type]
    assert [end.outcome for end in finished] == ["cancelled"]


@pytest.mark.parametrize(
    ("outcome", "saved", "kept"),
    [
        ("budget", ["budget"], False),
        ("deadline", ["deadline"], False),
        ("loss_spike", [], True),
        ("cancelled", [], False),
    ],
)
def test_a_run_that_ends_for_time_or_money_saves_first_and_keeps_no_pod(
    outcome: Outcome, saved: list[str], kept: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also with one_shot: false: a pod that is kept costs more. Saved before it is ended. Of one
    that is kept the reason says so, once, however often a run is ended.
    """
    done: list[str] = []
    reasons: list[str] = []
    monkeypatch.setattr(ending, "remember", lambda run_id, facts: None)
    monkeypatch.setattr(ending, "recall", lambda run_id: {"keep_pod": "yes"})
    monkeypatch.setattr(ending, "attempts", lambda run_id: [])
    monkeypatch.setattr(ending, "save_first", lambda run, why: done.append(why))
    monkeypatch.setattr(ending, "is_only_copy", lambda run_id: None)
    monkeypatch.setattr(ending, "kept_words", lambda run: "the pod p is kept: ssh x@y")
    monkeypatch.setattr(Run, "folder", property(lambda run: tmp_path))
    end = End(outcome, "why")
    for _ in range(2):
        done.clear()
        ending.finish(
            RUN,
            end,
            teardown=lambda run_id: done.append("teardown"),
            report=lambda run, outcome, reason, published: reasons.append(reason),
        )
        assert done == [*saved, *([] if kept else ["teardown"])]
        end = End(outcome, reasons[-1])
    assert reasons == (["why; the pod p is kept: ssh x@y"] if kept else ["why"]) * 2


@pytest.mark.parametrize(("outcome", "kept"), [("crash", True), ("cancelled", False)])
def test_a_pod_with_the_only_copy_of_a_model_is_left_to_its_guard(
    outcome: Outcome, kept: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """H50: the upload failed, and so did the rescue; the report says where the model is."""
    done: list[str] = []
    reasons: list[str] = []
    monkeypatch.setattr(ending, "remember", lambda run_id, facts: None)
    monkeypatch.setattr(ending, "recall", lambda run_id: {})
    monkeypatch.setattr(ending, "attempts", lambda run_id: [])
    monkeypatch.setattr(ending, "is_only_copy", lambda run_id: "the hub is away")
    monkeypatch.setattr(ending, "leave_to_guard", lambda run_id: done.append("left"))
    monkeypatch.setattr(Run, "folder", property(lambda run: tmp_path))
    ending.finish(
        RUN,
        End(outcome, "why"),
        teardown=lambda run_id: done.append("teardown"),
        report=lambda run, outcome, reason, published: reasons.append(reason),
    )
    assert done == (["left"] if kept else ["teardown"])
    assert ("the hub is away" in reasons[0]) == kept


def test_losing_the_api_decides_nothing(finished: list[End]) -> None:
    """The run counts as crashed and is revived when the server is back."""
    with pytest.raises(ApiLost):
        ending._outcome(RUN, _steps_that(httpx.ConnectError("refused")))  # type: ignore[arg-type]
    assert finished == []
