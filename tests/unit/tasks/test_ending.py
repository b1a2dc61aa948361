import signal
from datetime import UTC, datetime

import httpx
import pytest
from prefect.exceptions import TerminationSignal

from runner.errors import NoCapacity, TrainingFailed
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


def test_losing_the_api_decides_nothing(finished: list[End]) -> None:
    """The run counts as crashed and is revived when the server is back."""
    with pytest.raises(ApiLost):
        ending._outcome(RUN, _steps_that(httpx.ConnectError("refused")))  # type: ignore[arg-type]
    assert finished == []
