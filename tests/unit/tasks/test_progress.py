from typing import Any
from uuid import uuid4

import httpx
import pytest

from pod.pulse import Pulse
from tasks import progress
from tasks.progress import Progress
from tasks.surroundings import Surroundings


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, str]]:
    """What the artifact showed, in order."""
    seen: list[tuple[float, str]] = []

    def create(done: float, *, key: str, description: str) -> object:
        seen.append((done, description))
        return uuid4()

    def update(artifact: object, done: float, *, description: str) -> None:
        seen.append((done, description))

    monkeypatch.setattr(progress, "create_progress_artifact", create)
    monkeypatch.setattr(progress, "update_progress_artifact", update)
    return seen


def _step(step: int, *, loss: Any = 2.5, seconds_per_step: float = 1.0) -> dict[str, Any]:
    return {"kind": "step", "t": step * seconds_per_step, "step": step, "loss": loss}


ARMED = {"kind": "armed", "t": 0.0, "step": 0, "planned_steps": 40}


def test_a_step_is_shown_with_the_plan_the_loss_and_the_time_left(
    shown: list[tuple[float, str]],
) -> None:
    """The time left follows from the pace of the last steps."""
    Progress("run", 2)([ARMED, _step(9), _step(10)])
    assert shown == [(25.0, "attempt 2 · step 10/40 · loss 2.5000 · 0:30 left")]


def test_all_that_is_known_is_shown(shown: list[tuple[float, str]]) -> None:
    """Pace, rate, GPUs, money; what is unknown is left out and never a zero."""
    around = Surroundings(
        {},
        gpus=lambda environment: 97.4,
        labels=lambda environment: {"axr.lease": "1000", "axr.spent": "0.5000 0.3600"},
        clock=lambda: 1000.0 + 3600,
    )
    around.look()
    last = {**_step(10), "lr": 0.0002, "tokens_per_second": 12345.6}
    evaluated = {"kind": "eval", "t": 9.0, "step": 9, "eval_loss": 2.75}
    Progress("run", 1, around=around)([ARMED, _step(9), evaluated, last])
    assert shown[0][1] == (
        "attempt 1 · step 10/40 · loss 2.5000 · eval loss 2.7500 · lr 0.0002 · 12,346 tokens/s "
        "· GPU 97 % · $0.86 · 0:30 left"
    )


@pytest.mark.parametrize(
    ("phase", "said"),
    [
        ("loading", "attempt 2 · fast-forwarding data to step 500"),
        ("evaluating", "attempt 2 · evaluating · step 510/40"),
        ("saving", "attempt 2 · saving · step 510/40"),
    ],
)
def test_what_is_no_training_is_named(
    shown: list[tuple[float, str]], phase: Any, said: str
) -> None:
    """H38: a resumed trainer that passes over rows does not look hung."""
    before = [] if phase == "loading" else [_step(510)]
    Progress("run", 2, pulse=lambda: Pulse(1.0, 500, phase))([ARMED, *before])
    assert shown[0][1].startswith(said)


def test_updates_are_throttled_but_the_end_is_shown_at_once(shown: list[tuple[float, str]]) -> None:
    """One API request each few seconds, never one each step."""
    now = [0.0]
    show = Progress("run", 1, clock=lambda: now[0])
    for step in range(1, 11):
        show([_step(step)])
        now[0] += 0.1
    assert len(shown) == 1
    show([{"kind": "end", "t": 11.0, "step": 10}])
    assert shown[-1][1] == "attempt 1 · step 10 · training ended"


def test_a_loss_that_is_no_number_is_shown_as_it_is(shown: list[tuple[float, str]]) -> None:
    """NaN must not break the display."""
    Progress("run", 1)([ARMED, _step(1, loss="nan")])
    assert "loss nan" in shown[0][1]


def test_a_server_that_is_away_does_not_cost_the_follower(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The trainer is followed on; the next update shows again what there is."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise httpx.ConnectError("refused")

    monkeypatch.setattr(progress, "create_progress_artifact", refuse)
    Progress("run", 1)([ARMED, _step(1)])
    assert "can't be shown now" in caplog.text


def test_a_watcher_sees_something_before_the_first_step(shown: list[tuple[float, str]]) -> None:
    """Loading a large model takes minutes."""
    Progress("run", 1)([])
    assert shown == [(0.0, "attempt 1 · loading the model")]
