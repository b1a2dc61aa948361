import json
from datetime import UTC, datetime, timedelta

import pytest

from blocks.cloud import Pod, PodPhase, PodStatus
from runner.errors import PodLost, TrainingFailed, TryAgain
from runner.taskfile import parse_task_file
from tasks import monitor
from tasks.monitor import Monitor
from tasks.run import Order, Run

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


class FakeCloud:
    """A cloud whose look-up answers what the test says."""

    def __init__(self, answer: PodPhase | Exception) -> None:
        self.answer = answer
        self.started = 0

    def status(self, pod: Pod) -> PodStatus:
        """The answer."""
        if isinstance(self.answer, Exception):
            raise self.answer
        return PodStatus(self.answer)

    def create(self, order: object) -> None:
        """Start the pod again."""
        self.started += 1


def _monitor(
    monkeypatch: pytest.MonkeyPatch,
    *,
    cloud: FakeCloud | None = None,
    settings: str = "{}",
    hours: float = 1.0,
    price: float = 2.0,
) -> Monitor:
    monkeypatch.setattr(monitor, "cloud_of", lambda pod: cloud or FakeCloud(PodPhase.RUNNING))
    monkeypatch.setattr(monitor, "pod_order", lambda run, order, cloud: None)
    monkeypatch.setattr(monitor, "cancelled_for", lambda run_id: 0.0)
    bill = {"created": BEGAN.isoformat(), "terminated": None, "price_per_hour": price}
    gone = {**bill, "terminated": (BEGAN + timedelta(minutes=6)).isoformat()}
    facts = {"pod.local-1": json.dumps(bill), "pod.local-0": json.dumps(gone)}
    monkeypatch.setattr(monitor, "recall", lambda run_id: facts)
    task = parse_task_file(f"base_model: x\nrunner: {settings}\n", "x.yml")
    pod = Pod("local-1", "axr-run", "local", BEGAN, price)
    return Monitor(
        Run("run", "x.yml", None, BEGAN),
        Order(task, ("local",)),
        pod,
        now=lambda: BEGAN + timedelta(hours=hours),
    )


def test_nothing_happens_while_all_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual case."""
    _monitor(monkeypatch)()


@pytest.mark.parametrize(
    ("settings", "outcome"),
    [("{max_hours: 0.5}", "deadline"), ("{budget: 2.1}", "budget")],
)
def test_time_and_money_end_the_wait(
    settings: str, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An hour is over half an hour; two pods at two dollars cost more than two dollars."""
    with pytest.raises(TrainingFailed) as ended:
        _monitor(monkeypatch, settings=settings)()
    assert ended.value.outcome == outcome


def test_a_lookup_that_fails_is_not_a_lost_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """H21: "can't see it" is never "it is gone"."""
    _monitor(monkeypatch, cloud=FakeCloud(TryAgain("503")))()


def test_a_pod_that_is_confirmed_gone_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """H23: the owner may have ended it by hand."""
    with pytest.raises(PodLost):
        _monitor(monkeypatch, cloud=FakeCloud(PodLost("gone")))()


def test_a_broken_machine_is_as_good_as_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It bills and trains nothing."""
    with pytest.raises(PodLost, match="local-1 on local is broken"):
        _monitor(monkeypatch, cloud=FakeCloud(PodPhase.BROKEN))()


def test_a_stopped_container_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As clouds do by themselves; locally nobody else would."""
    cloud = FakeCloud(PodPhase.STOPPED)
    _monitor(monkeypatch, cloud=cloud)()
    assert cloud.started == 1


def test_a_cancel_that_nobody_delivered_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parent whose worker died gets no signal: it must read its own state."""
    watcher = _monitor(monkeypatch)
    monkeypatch.setattr(monitor, "cancelled_for", lambda run_id: 30.0)
    with pytest.raises(TrainingFailed) as ended:
        watcher()
    assert ended.value.outcome == "cancelled"
