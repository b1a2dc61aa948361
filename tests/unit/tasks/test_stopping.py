from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from prefect.client.schemas.objects import FlowRun
from prefect.states import Completed, Running

from pod.rundir import RunDir
from tasks import standing, stopping
from tasks.run import Run
from tasks.stopping import (
    ANSWER_WITHIN,
    SAVE_WITHIN,
    STORE_WITHIN,
    AskedToStop,
    save_first,
)

RUN = Run("run", "x.yml", None, datetime(2026, 1, 1, tzinfo=UTC))


class Server:
    """Prefect with one training, whose pod answers and ends so many seconds after it is asked."""

    def __init__(self, *, answers: float = 5.0, ends: float = 40.0) -> None:
        self.seconds = 0.0
        self.asked_at: float | None = None
        self.answers, self.ends = answers, ends
        self.away = False
        self.child = FlowRun(id=uuid4(), flow_id=uuid4(), name="train-1", state=Running())
        self.other = FlowRun(id=uuid4(), flow_id=uuid4(), name="prepare-1", state=Completed())

    def read_flow_run(self, _: UUID) -> FlowRun:
        """The training as it is now."""
        if self.away:
            raise httpx.ConnectError("refused")
        since = -1.0 if self.asked_at is None else self.seconds - self.asked_at
        if since >= self.answers:
            self.child.labels["axr.stopping"] = "yes"
        if since >= self.ends:
            self.child.state = Completed()
        return self.child

    def update_flow_run_labels(self, _: UUID, labels: dict[str, Any]) -> None:
        """Take the labels."""
        self.child.labels.update(labels)
        if "axr.stop" in labels:
            self.asked_at = self.seconds

    def sleep(self, seconds: float) -> None:
        """Time passes."""
        self.seconds += seconds


def _serve(monkeypatch: pytest.MonkeyPatch, server: Server) -> list[float]:
    """Let the module speak to this server; until when the pod's budget was prolonged."""
    spared: list[float] = []
    monkeypatch.setattr(stopping, "api", lambda: server)
    monkeypatch.setattr(standing, "api", lambda: server)
    monkeypatch.setattr(stopping, "children", lambda run: [server.other, server.child])
    monkeypatch.setattr(stopping, "open_order", lambda run: None)
    monkeypatch.setattr(stopping, "renew", lambda run, order, now, spare: spared.append(spare))
    return spared


def _save(server: Server) -> float:
    """Seconds that it took."""
    save_first(RUN, "budget", clock=lambda: server.seconds, sleep=server.sleep)
    return server.seconds


def test_a_training_is_asked_to_save_and_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Far longer than the 30 s that a cancel has; the guard is told that the time is paid for."""
    server = Server(ends=400)
    spared = _serve(monkeypatch, server)
    assert _save(server) == pytest.approx(400, abs=2)
    assert server.child.labels["axr.stop"] == "budget"
    assert spared == [SAVE_WITHIN + STORE_WITHIN]


def test_one_that_has_ended_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parent that is started again in the middle repeats nothing."""
    server = Server()
    server.child.state = Completed()
    assert _serve(monkeypatch, server) == []
    assert _save(server) == 0
    assert "axr.stop" not in server.child.labels


@pytest.mark.parametrize(
    ("answers", "within"), [(1e9, ANSWER_WITHIN), (5, SAVE_WITHIN + STORE_WITHIN)]
)
def test_a_pod_that_does_not_answer_or_end_costs_a_bounded_time(
    answers: float, within: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dead pod a minute, a slow store twenty."""
    server = Server(answers=answers, ends=1e9)
    _serve(monkeypatch, server)
    assert _save(server) == pytest.approx(within, abs=3)


def test_the_follower_hears_the_word_and_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within five seconds, with one request each; a server that is away wants nothing."""
    server = Server()
    _serve(monkeypatch, server)
    asked = AskedToStop(str(server.child.id), clock=lambda: server.seconds)
    assert asked() is None
    server.away = True
    server.seconds = 6
    assert asked() is None
    server.away = False
    server.child.labels["axr.stop"] = "budget"
    server.seconds = 10
    assert asked() is None  # between two looks
    server.seconds = 12
    assert asked() == "budget"
    assert server.child.labels["axr.stopping"] == "yes"
    server.child.labels["axr.stop"] = "nonsense"
    server.seconds = 30
    assert asked() is None


def test_a_stopped_training_ends_with_the_outcome_that_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Unless it had just completed: then it has."""
    from runner.attempts import AttemptFacts
    from tasks import trainer

    for judged, outcome in (("cancelled", "budget"), ("completed", "completed")):
        facts = AttemptFacts(1, judged, "why")  # type: ignore[arg-type]
        monkeypatch.setattr(trainer, "read_facts", lambda *a, found=facts, **k: found)
        process = SimpleNamespace(stop=lambda grace_s: None, exit_code=lambda: 0)
        ended = trainer._stopped(RunDir(tmp_path), trainer.Plan(1), process, "budget")  # type: ignore[arg-type]
        assert ended.outcome == outcome


def test_a_follower_stops_the_trainer_when_it_is_asked_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """At the next turn, with time to save; a trainer that has ended by itself is judged as ever."""
    from runner.attempts import AttemptFacts
    from tasks import trainer

    stopped: list[float] = []
    turns: list[float] = []
    facts = AttemptFacts(1, "crash", "ended")
    monkeypatch.setattr(trainer, "read_facts", lambda *args, **more: facts)
    monkeypatch.setattr(
        trainer, "HangWatch", lambda *args: SimpleNamespace(ended=lambda new: False)
    )
    process = SimpleNamespace(
        alive=lambda: len(turns) < 9, stop=lambda grace_s: stopped.append(grace_s), exit_code=int
    )

    def follow(asked_at: int) -> AttemptFacts:
        turns.clear()
        return trainer.follow_trainer.fn(
            RunDir(tmp_path),
            trainer.Plan(1),
            process,  # type: ignore[arg-type]
            lambda new: None,
            asked=lambda: "budget" if len(turns) >= asked_at else None,
            sleep=turns.append,
        )

    ended = follow(3)
    assert (ended.outcome, stopped, len(turns)) == ("budget", [SAVE_WITHIN], 3)
    assert follow(99).outcome == "crash"
    assert len(stopped) == 1
