from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from prefect.client.schemas.objects import FlowRun, State
from prefect.states import Cancelling, Crashed, Pending, Running

from deployments.revive import SETTLED, is_dead
from runner.locks import hold

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _run(state: State[Any], *, age: float, run_count: int = 1) -> FlowRun:
    state.timestamp = NOW - timedelta(seconds=age)
    return FlowRun(id=uuid4(), flow_id=uuid4(), state=state, run_count=run_count)


@pytest.mark.parametrize(
    ("state", "age", "dead"),
    [
        (Running(), 30, True),
        (Running(), 1, False),  # it may not have taken its lock yet
        (Crashed(), 30, True),
        (Crashed(), 1, False),  # the worker proposes Crashed twice
        (Pending(), 30, False),  # starting a process takes its time on a busy machine
        (Pending(), 90, True),
    ],
)
def test_dead_is_who_had_time_to_take_the_lock_and_does_not_hold_it(
    state: State[Any], age: float, dead: bool, tmp_path: Path
) -> None:
    """The age only keeps a look from coming too early; the lock decides."""
    assert is_dead(_run(state, age=age), tmp_path / "run.lock", NOW) is dead


def test_a_run_whose_worker_died_gives_its_slot_back(tmp_path: Path) -> None:
    """H51: Prefect leaves it Running for ever; ours is set going, and so ended, within seconds."""
    orphan = _run(Running(), age=SETTLED + 0.1)
    lock = tmp_path / "run.lock"
    with hold(lock):
        assert not is_dead(orphan, lock, NOW)
    assert is_dead(orphan, lock, NOW)


def test_a_busy_run_without_a_sign_of_life_is_not_dead(tmp_path: Path) -> None:
    """H52: no heartbeat is asked for; ten silent minutes, or a day, prove nothing."""
    with hold(tmp_path / "run.lock"):
        for age in (90, 600, 86400):
            assert not is_dead(_run(Running(), age=age), tmp_path / "run.lock", NOW)


def test_who_holds_the_lock_is_alive_whatever_the_server_says(tmp_path: Path) -> None:
    """An orphan whose worker was killed goes on and is left alone."""
    with hold(tmp_path / "run.lock"):
        assert not is_dead(_run(Crashed(), age=3600), tmp_path / "run.lock", NOW)


def test_a_run_that_is_being_cancelled_is_dead_only_after_its_worker_had_time(
    tmp_path: Path,
) -> None:
    """The worker needs up to 30 s to end it; nobody else will after that."""
    assert not is_dead(_run(Cancelling(), age=20), tmp_path / "run.lock", NOW)
    assert is_dead(_run(Cancelling(), age=60), tmp_path / "run.lock", NOW)
