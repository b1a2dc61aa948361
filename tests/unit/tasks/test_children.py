from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from prefect.client.schemas.objects import FlowRun, State
from prefect.states import Completed, Crashed, Failed, Pending, Running, Scheduled

from runner.errors import TrainingFailed
from tasks import children


class Server:
    """Stands for the Prefect API of one child: gives its states one after the other."""

    def __init__(self, *states: State[Any], run_count: int = 1) -> None:
        self.states = list(states)
        self.run_count = run_count
        self.set: list[State[Any]] = []

    def read_flow_run(self, flow_run_id: object) -> FlowRun:
        """The next state; the last one stays."""
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return FlowRun(id=flow_run_id, flow_id=uuid4(), state=state, run_count=self.run_count)

    def set_flow_run_state(self, flow_run_id: object, state: State[Any], force: bool) -> None:
        """Remember what was set."""
        self.set.append(state)


def _follow(server: Server, monkeypatch: pytest.MonkeyPatch, *, seconds: float = 1.0) -> State[Any]:
    def ticks() -> Iterator[float]:
        now = 0.0
        while True:
            yield now
            now += seconds

    clock = ticks()
    monkeypatch.setattr(children, "api", lambda: server)
    child = FlowRun(id=uuid4(), flow_id=uuid4(), name="train-1")
    return children.follow(
        child, lambda: None, clock=lambda: next(clock), sleep=lambda seconds: None
    )


def _old(state: State[Any]) -> State[Any]:
    state.timestamp = datetime.now(UTC) - timedelta(seconds=60)
    return state


def test_the_final_state_is_returned_whatever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed child does not raise: its name and message carry the outcome."""
    spike = Failed(name="LossSpike", message="the loss jumped")
    assert _follow(Server(Running(), spike), monkeypatch).name == "LossSpike"


def test_a_child_whose_process_died_is_set_going_again_under_its_old_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Crashed means that the follower died, not the work."""
    crashed = _old(Crashed())
    server = Server(Running(), crashed, crashed, Running(), Completed())
    assert _follow(server, monkeypatch).is_completed()
    assert [state.is_scheduled() for state in server.set] == [True]


def test_a_fresh_crash_is_left_to_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker proposes Crashed twice and would overwrite what is set in between."""
    server = Server(Crashed(), Completed())
    _follow(server, monkeypatch)
    assert server.set == []


def test_a_child_that_crashes_for_ever_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded, with the number of times in the reason."""
    with pytest.raises(TrainingFailed, match="crashed 6 times"):
        _follow(Server(_old(Crashed()), run_count=6), monkeypatch)


@pytest.mark.parametrize("waiting", [Scheduled(), Pending()])
def test_a_child_that_no_worker_takes_ends_the_run(
    waiting: State[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """H56: waiting for a worker that never comes has a limit."""
    with pytest.raises(TrainingFailed, match="no worker on the pod took train-1"):
        _follow(Server(waiting), monkeypatch, seconds=60)


def test_a_long_training_is_not_taken_for_a_missing_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the time in which nobody runs it counts."""
    states = [Scheduled(), *[Running() for _ in range(50)], Scheduled(), Completed()]
    assert _follow(Server(*states), monkeypatch, seconds=60).is_completed()
