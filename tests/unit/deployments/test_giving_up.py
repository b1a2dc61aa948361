import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prefect.states import Cancelling, Crashed, Running, Scheduled

from deployments import giving_up, revive
from deployments.giving_up import end_unrevivable
from deployments.revive import revive_parents
from runner.locks import hold
from runner.revival import Death
from tasks.run import parent_lock
from tests.prefect_stand_in import Server, stand_in


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Server:
    """A server, and a home without any lock."""
    monkeypatch.setenv("AXR_HOME", str(tmp_path))
    return stand_in(monkeypatch)


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs that were ended from outside, with their outcome."""
    seen: list[str] = []

    def end(run_id: str, how: giving_up.End) -> bool:
        seen.append(f"{run_id} {how.outcome}")
        return True

    monkeypatch.setattr(giving_up, "end_dead_run", end)
    return seen


def _dead(since: float, revivals: int, revived: float) -> str:
    now = time.time()
    return Death(now - since, revivals, now - revived).to_text()


def test_a_dead_run_is_revived_three_times_then_ended(server: Server, ended: list[str]) -> None:
    """H51: nobody needs to click."""
    run = server.add_run(Crashed(), age=30)
    for _ in range(3):
        assert revive_parents() == [run]
        state = Crashed()
        state.timestamp = datetime(2026, 1, 1, tzinfo=UTC)
        server.read_flow_run(next(iter(server.runs))).state = state
    assert revive_parents() == []
    assert end_unrevivable() == []  # the third one may still be on its way
    server.update_flow_run_labels(next(iter(server.runs)), {"axr.death": _dead(200, 3, 90)})
    assert end_unrevivable() == [run]
    assert ended == [f"{run} crash"]


def test_a_run_that_is_seen_alive_has_all_its_revivals_again(server: Server) -> None:
    """It was revived: that its process dies again tomorrow is another matter."""
    run = server.add_run(Running(), age=30, death=_dead(100, 3, 50))
    with hold(parent_lock(run)):
        assert revive_parents() == []
    assert "death" not in server.facts(run)
    assert revive_parents() == [run]


def test_a_cancelled_parent_gets_the_signal_that_its_worker_did_not_send(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H53: a worker ignores a cancel of runs that it did not start; a living one has time."""
    pressed: list[str] = []
    monkeypatch.setattr(revive, "press", lambda run, facts, now: pressed.append(run))
    late, soon = (server.add_run(Cancelling(), age=age) for age in (60, 20))
    with hold(parent_lock(late)), hold(parent_lock(soon)):
        revive_parents()
    assert pressed == [late]


def test_a_cancelled_run_without_a_parent_is_revived_to_be_ended(server: Server) -> None:
    """H53: its outcome is decided."""
    run = server.add_run(Cancelling(), age=60)
    assert revive_parents() == [run]
    assert server.facts(run)["outcome"] == "cancelled"


def test_a_run_that_is_given_up_before_it_had_a_pod_is_ended_too(server: Server) -> None:
    """Nobody had switched the sweep on."""
    server.schedule.active = False
    server.add_run(Crashed(), age=30, run_count=21)
    assert revive_parents() == []
    assert server.schedule.active


@pytest.mark.parametrize(("places", "gone"), [(4, True), (1, False)])
def test_a_revived_run_that_no_worker_takes_is_ended_unless_it_waits_for_its_turn(
    places: int, gone: bool, server: Server, ended: list[str]
) -> None:
    """H51: without a worker nobody will ever take it. In a full queue its pod goes on training."""
    server.queue_limit = places
    run = server.add_run(Scheduled(), age=500, death=_dead(700, 1, 690))
    server.add_run(Running())
    assert end_unrevivable() == ([run] if gone else [])


def test_only_the_dead_are_given_up(server: Server, ended: list[str]) -> None:
    """A run that was never dead may wait for hours; one that lives is left alone."""
    server.add_run(Scheduled(), age=90_000)
    living = server.add_run(Running(), age=700, death=_dead(700, 3, 690))
    with hold(parent_lock(living)):
        assert end_unrevivable() == []


def test_one_run_that_can_not_be_ended_keeps_no_other(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cloud is away; the next sweep tries again."""
    first = server.add_run(Crashed(), age=700, death=_dead(700, 3, 690))
    second = server.add_run(Crashed(), age=700, death=_dead(700, 3, 690))

    def end(run_id: str, how: giving_up.End) -> bool:
        if run_id == first:
            raise giving_up.RunnerError("503")
        return True

    monkeypatch.setattr(giving_up, "end_dead_run", end)
    assert end_unrevivable() == [second]
