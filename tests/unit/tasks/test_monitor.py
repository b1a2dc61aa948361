import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from blocks.cloud import Pod, PodPhase, PodStatus
from runner.errors import PodLost, TrainingFailed, TryAgain
from runner.taskfile import parse_task_file
from tasks import limits, monitor
from tasks.monitor import Monitor
from tasks.run import Order, Run

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


class FakeCloud:
    """A cloud whose look-up answers what the test says."""

    def __init__(self, answer: PodPhase | Exception, price: float = 2.0) -> None:
        self.answer = answer
        self.price = price
        self.started = 0

    def status(self, pod: Pod) -> PodStatus:
        """The answer."""
        if isinstance(self.answer, Exception):
            raise self.answer
        return PodStatus(self.answer)

    def create(self, order: object) -> Pod:
        """Start the pod again."""
        self.started += 1
        return Pod("local-1", "axr-run", "local", BEGAN, self.price)

    def find(self, run: str) -> Pod:
        """The pod, at its present price."""
        return Pod("local-1", "axr-run", "local", BEGAN, self.price)


def _monitor(
    monkeypatch: pytest.MonkeyPatch,
    *,
    cloud: FakeCloud | None = None,
    settings: str = "{}",
    hours: float = 1.0,
    price: float = 2.0,
    clock: Callable[[], float] = lambda: 0.0,
    spare: float = 0.0,
) -> Monitor:
    monkeypatch.setattr(monitor, "cloud_of", lambda pod: cloud or FakeCloud(PodPhase.RUNNING))
    monkeypatch.setattr(monitor, "pod_order", lambda run, order, cloud: None)
    monkeypatch.setattr(limits, "cancelled_for", lambda run_id: 0.0)
    for name in ("check_day", "renew", "tell_of_budget"):
        monkeypatch.setattr(limits, name, lambda *args, **kwargs: None)
    bill = {
        "cloud": "local",
        "created": BEGAN.isoformat(),
        "terminated": None,
        "price_per_hour": price,
    }
    gone = {**bill, "terminated": (BEGAN + timedelta(minutes=6)).isoformat()}
    facts = {"pod.local-1": json.dumps(bill), "pod.local-0": json.dumps(gone)}
    monkeypatch.setattr(limits, "recall", lambda run_id: facts)
    task = parse_task_file(f"base_model: x\nrunner: {settings}\n", "x.yml")
    pod = Pod("local-1", "axr-run", "local", BEGAN, price)
    return Monitor(
        Run("run", "x.yml", None, BEGAN),
        Order(task, ("local",)),
        pod,
        clock=clock,
        spare=spare,
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
    monkeypatch.setattr(limits, "cancelled_for", lambda run_id: 30.0)
    with pytest.raises(TrainingFailed) as ended:
        watcher()
    assert ended.value.outcome == "cancelled"


def _rising(monkeypatch: pytest.MonkeyPatch, cloud: FakeCloud, settings: str) -> list[float]:
    """Watch a pod of 2 $ for six minutes; the prices that were written to its bill."""
    billed: list[float] = []
    monkeypatch.setattr(monitor, "remember_pod", lambda pod: billed.append(pod.price_per_hour))
    clock = [0.0]
    watcher = _monitor(
        monkeypatch, cloud=cloud, settings=settings, hours=0.1, clock=lambda: clock[0]
    )
    try:
        for clock[0] in range(0, 360, 10):
            watcher()
    except (PodLost, TrainingFailed) as ended:
        billed.append(-1.0)
        raise ended from None
    return billed


def test_a_pod_that_becomes_dearer_is_billed_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """And stays, within max_price_per_hour; looked at every five minutes, or when started again."""
    assert _rising(monkeypatch, FakeCloud(PodPhase.RUNNING, price=3.0), "{}") == [3.0]
    assert _rising(monkeypatch, FakeCloud(PodPhase.STOPPED, price=3.0), "{}")[0] == 3.0
    assert _rising(monkeypatch, FakeCloud(PodPhase.RUNNING, price=1.0), "{}") == []


def test_a_pod_that_becomes_too_dear_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """For another one where the checkpoints survive; else the run saves what it has and ends."""
    dear = FakeCloud(PodPhase.RUNNING, price=6.0)
    stored = "{checkpoint_store: s3://bucket/x}"
    with pytest.raises(
        PodLost, match=r"costs \$6.00 per hour now, more than max_price_per_hour: 5"
    ):
        _rising(monkeypatch, dear, stored)
    with pytest.raises(TrainingFailed) as ended:
        _rising(monkeypatch, dear, "{}")
    assert ended.value.outcome == "budget"


def test_publishing_may_pass_the_end_of_the_budget_a_little(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A trained model is not lost for a minute's price; at 2 $ an hour it is used up at 57 min."""
    _monitor(monkeypatch, settings="{budget: 2.1}", spare=600)()
    with pytest.raises(TrainingFailed):
        _monitor(monkeypatch, settings="{budget: 2.1}", spare=60)()


@pytest.mark.parametrize(
    ("store", "minutes"), [("checkpoint_store: hf://me/x", 10), ("one_shot: true", 60)]
)
def test_a_pod_that_waits_for_gpus_is_given_up(
    monkeypatch: pytest.MonkeyPatch, store: str, minutes: int
) -> None:
    """A stopped machine whose GPUs went to others; later where the work would go with it."""
    cloud = FakeCloud(PodPhase.QUEUED)
    now = [1000.0]
    watcher = _monitor(monkeypatch, cloud=cloud, settings=f"{{{store}}}")
    watcher.clock = lambda: now[0]

    def look_for(seconds: float) -> None:
        for _ in range(int(seconds / 10)):
            watcher._check_pod()
            now[0] += 10

    look_for(minutes * 60)
    cloud.answer = PodPhase.RUNNING
    look_for(10)
    cloud.answer = PodPhase.QUEUED
    look_for(minutes * 60)
    cloud.answer = TryAgain("503")
    look_for(60)
    cloud.answer = PodPhase.QUEUED
    with pytest.raises(PodLost, match=r"local-1 on local has waited \d+ minutes for its GPUs"):
        look_for(60)
