from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from prefect.states import Crashed

from blocks.cloud import Pod
from flows import sweep as flow
from runner.home import home
from runner.locks import hold
from runner.revival import Death
from tasks.sighting import Listing
from tests.prefect_stand_in import Server, stand_in

POD = Pod("p1", "axr-run", "local", datetime(2026, 1, 1, tzinfo=UTC), 0.0)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Server:
    """A server, no pods, and a sweep that does nothing about pods."""
    monkeypatch.setenv("AXR_HOME", str(tmp_path))
    monkeypatch.setattr(flow, "sweep_pods", lambda listing: [])
    monkeypatch.setattr(flow, "own_pods", lambda listing: list(listing.pods))
    monkeypatch.setattr(flow, "log", lambda: SimpleNamespace(info=lambda *_: None))
    return stand_in(monkeypatch)


def _see(monkeypatch: pytest.MonkeyPatch, *listings: Listing) -> None:
    left = list(listings)
    monkeypatch.setattr(flow, "list_everywhere", lambda: left.pop(0) if len(left) > 1 else left[0])


@pytest.mark.parametrize(
    ("listing", "stays_on"),
    [
        (Listing(()), False),
        (Listing((POD,)), True),
        (Listing((), failed={"runpod": "503"}), True),
    ],
)
def test_the_sweep_switches_itself_off_when_nothing_is_left(
    listing: Listing, stays_on: bool, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cloud that can't be seen may hold a pod."""
    _see(monkeypatch, listing)
    flow.look_around()
    assert server.schedule.active is stays_on


def test_a_pod_that_appears_meanwhile_switches_it_on_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run that made it had switched the sweep on just before that."""
    _see(monkeypatch, Listing(()), Listing(()), Listing((POD,)))
    flow.look_around()
    assert server.schedule.active


def test_a_dead_run_keeps_it_going(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its report is not written yet."""
    _see(monkeypatch, Listing(()))
    now = datetime.now(UTC).timestamp()
    server.add_run(Crashed(), age=1, death=Death(now, 1, now).to_text())
    flow.look_around()
    assert server.schedule.active


def test_two_sweeps_do_not_act_at_once(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one leaves."""
    monkeypatch.setattr(flow, "look_around", lambda: pytest.fail("it acted"))
    with hold(home().locks / "sweep.lock"):
        assert flow.sweep.fn() == 0
