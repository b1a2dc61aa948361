import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from prefect.states import Crashed, Failed, Running

from runner.locks import hold
from tasks import from_outside, teardown
from tasks.ending import End
from tasks.from_outside import decide, end_dead_run, holds_only_copy, press
from tasks.run import parent_lock
from tests.prefect_stand_in import Server, stand_in

HUB = "base_model: x\nhub_model_id: me/x\nrunner: {cloud: local}\n"
BILL = {"created": "2026-01-01T00:00:00+00:00", "terminated": None, "price_per_hour": 1.0}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Server:
    """A server, and a home without any lock."""
    monkeypatch.setenv("AXR_HOME", str(tmp_path))
    return stand_in(monkeypatch)


@pytest.fixture(autouse=True)
def _children_stop_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teardown, "CHILD_STOPS_WITHIN", 0.0)


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What was sent to whom."""
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(from_outside, "_signal", lambda pid, number: sent.append((pid, number)))
    monkeypatch.setattr(from_outside, "holder", lambda lock: 4711)
    return sent


def test_a_living_parent_is_told_once_and_killed_only_when_it_stands_still(
    server: Server, signals: list[tuple[int, int]]
) -> None:
    """It may be in the middle of a call to a cloud."""
    run = server.add_run(Running())
    decide(run, "hang", "its pod was idle")
    assert signals == [(4711, signal.SIGTERM)]
    began = time.time()
    press(run, server.facts(run), now=began + 60)
    assert len(signals) == 1
    press(run, server.facts(run), now=began + 180)
    assert signals[1:] == [(4711, signal.SIGKILL)]


def test_a_parent_that_ends_its_run_is_not_disturbed(
    server: Server, signals: list[tuple[int, int]]
) -> None:
    """Giving a pod back may take long, while the cloud is away."""
    run = server.add_run(Running(), outcome="cancelled", reason="by the user", signalled="4711 5")
    press(run, server.facts(run))
    decide(run, "hang", "its pod was idle")
    assert signals == []
    assert server.facts(run)["outcome"] == "cancelled"


def test_the_parent_that_came_back_is_not_told_again(
    server: Server, signals: list[tuple[int, int]]
) -> None:
    """It reads what was decided, and does nothing but the end."""
    run = server.add_run(Running(), outcome="hang", decided_by="sweep", signalled="4000 5")
    press(run, server.facts(run))
    assert signals == []


def test_the_signal_reaches_who_holds_the_lock(server: Server) -> None:
    """H51, DESIGN 5: a worker does not know the runs of the worker before it."""
    run = server.add_run(Running())
    holding = "import sys, time; from runner.locks import hold; from pathlib import Path\n"
    holding += "with hold(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    command = [sys.executable, "-c", holding, str(parent_lock(run))]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "held\n"
        decide(run, "deadline", "time is up")
        assert parent.wait(10) == -signal.SIGTERM
    finally:
        parent.kill()
        parent.wait()


def _ended(monkeypatch: pytest.MonkeyPatch) -> list[tuple[End, Any]]:
    seen: list[tuple[End, Any]] = []

    def finish(run: object, end: End, **steps: object) -> object:
        seen.append((end, steps["teardown"]))
        return Failed(name="Crash", message=end.reason)

    monkeypatch.setattr(from_outside, "finish", finish)
    return seen


def test_a_dead_run_is_ended_under_its_own_lock(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are never two who end it: one that lives after all is left alone."""
    run = server.add_run(Crashed(), age=700)
    seen = _ended(monkeypatch)
    with hold(parent_lock(run)):
        assert not end_dead_run(run, End("crash", "died"))
    assert seen == []
    assert end_dead_run(run, End("crash", "died"))
    assert [end.outcome for end, _ in seen] == ["crash"]
    assert server.state(run) == "Crash"


def test_what_was_decided_before_stays_decided(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A completed run whose parent died before its report is completed."""
    run = server.add_run(Crashed(), age=700, outcome="completed", reason="trained")
    seen = _ended(monkeypatch)
    end_dead_run(run, End("crash", "died"))
    assert [end.outcome for end, _ in seen] == ["completed"]


@pytest.mark.parametrize(
    ("facts", "content", "only"),
    [
        ({"pod.p1": {**BILL, "cloud": "runpod"}}, HUB, True),
        ({"pod.p1": {**BILL, "cloud": "local"}}, HUB, False),
        ({"pod.p1": {**BILL, "cloud": "runpod", "terminated": BILL["created"]}}, HUB, False),
        ({"pod.p1": {**BILL, "cloud": "runpod"}, "published": "me/x"}, HUB, False),
        (
            {"pod.p1": {**BILL, "cloud": "runpod"}},
            "base_model: x\nrunner: {cloud: local, checkpoint_store: 'hf://me/ckpt'}\n",
            False,
        ),
    ],
)
def test_a_pod_with_the_only_copy_is_left_to_its_guard(
    facts: dict[str, Any],
    content: str,
    only: bool,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No model is lost: the guard brings it to safety, when nobody renews its lease any more."""
    plain = {name: v if isinstance(v, str) else json.dumps(v) for name, v in facts.items()}
    run = server.add_run(Crashed(), age=700, content=content, **plain)
    assert holds_only_copy(run) is None  # nothing was trained yet
    server.add_child(run, "train-1", Running())
    assert (holds_only_copy(run) is not None) is only
    seen = _ended(monkeypatch)
    end_dead_run(run, End("crash", "died"))
    ((end, how),) = seen
    assert (how is from_outside.leave_to_guard) is only
    assert all(child.state.is_cancelling() for child in _children(server, run))
    assert ("only copy" in end.reason) is only


def _children(server: Server, run: str) -> list[Any]:
    return [child for child in server.runs.values() if f"run:{run}" in child.tags]
