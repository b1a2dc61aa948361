from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any

import pytest

from blocks.cloud import Cloud, Pod, PodOrder
from runner.diagnosis import diagnose
from runner.errors import ConfigError, KeyRefused, NoCapacity, OutOfFunds, TrainingFailed
from runner.taskfile import parse_task_file
from tasks import provision
from tasks.provision import MOST_DEAD, first_with_room, with_fewer
from tasks.run import Order, Run
from tasks.waiting import DidNotStart

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
RUN = Run("run", "x.yml", None, BEGAN)


class FakeCloud:
    """A cloud that gives a new pod at each call, or says why not."""

    def __init__(self, name: str, refusal: Exception | None = None) -> None:
        self.name = name
        self.refusal = refusal
        self.asked: list[PodOrder] = []

    def create(self, order: PodOrder) -> Pod:
        """A pod in a place of its own."""
        self.asked.append(order)
        if self.refusal:
            raise self.refusal
        n = len(self.asked)
        return Pod(f"pod-{n}", "axr-run", self.name, BEGAN, 1.0, f"place {n}")

    def find(self, run: str) -> Pod | None:
        """Nothing is there."""
        return None


def _clouds(*refusals: Exception | None) -> list[FakeCloud]:
    names = ("runpod", "vast", "local")
    return [FakeCloud(name, each) for name, each in zip(names, refusals, strict=False)]


def _first(clouds: list[FakeCloud]) -> Pod:
    order = PodOrder("run", {}, BEGAN)
    given: list[Cloud] = list(clouds)  # type: ignore[arg-type]  # only `create` is asked
    return first_with_room(given, lambda name: order)


@pytest.mark.parametrize("refusal", [NoCapacity("full"), OutOfFunds("0 $"), KeyRefused("401")])
def test_the_next_cloud_is_asked_when_one_refuses(refusal: Exception) -> None:
    """Whatever the reason, the run wants a machine."""
    assert _first(_clouds(refusal, NoCapacity("full"), None)).cloud == "local"


def test_all_refusals_are_told_at_the_end() -> None:
    """With the name of who said what."""
    with pytest.raises(NoCapacity, match=r"^runpod: full; vast: no key$"):
        _first(_clouds(NoCapacity("full"), ConfigError("no key")))


def test_a_single_cloud_keeps_its_own_kind_of_refusal() -> None:
    """A refused key is not want of room."""
    with pytest.raises(KeyRefused, match="401"):
        _first(_clouds(KeyRefused("401")))


class NoLimits:
    """Time and money without end."""

    def __init__(self, run: Run, order: Order, spare: float) -> None:
        self.spare = spare

    def look(self) -> None:
        """All is well."""


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The pods that were given back; nothing speaks to Prefect."""
    given_back: list[str] = []
    for name in ("switch_sweep_on", "_make_queue", "remember_pod", "remember"):
        monkeypatch.setattr(provision, name, lambda *args, **kwargs: None)
    monkeypatch.setattr(provision, "recall", lambda run_id: {})
    monkeypatch.setattr(provision, "attempts", lambda run_id: [])
    monkeypatch.setattr(provision, "Limits", NoLimits)
    monkeypatch.setattr(provision, "a_place", lambda run, look: nullcontext())
    monkeypatch.setattr(provision, "end_pod", lambda pod: given_back.append(pod.id))
    monkeypatch.setattr(
        provision,
        "pod_order",
        lambda run, order, cloud, avoid, gpu_count: PodOrder(
            "run", {}, BEGAN, avoid=avoid, gpu_count=gpu_count
        ),
    )
    return given_back


def _provision(
    monkeypatch: pytest.MonkeyPatch, cloud: FakeCloud, *, dead: int, settings: str = "{}"
) -> Pod:
    """What is got when the first `dead` machines do not start."""

    def wait(_: Any, pod: Pod, look: Any) -> None:
        if int(pod.id.removeprefix("pod-")) <= dead:
            raise DidNotStart("still queued after 5 minutes")

    monkeypatch.setattr(provision, "cloud_named", lambda name: cloud)
    monkeypatch.setattr(provision, "cloud_of", lambda pod: cloud)
    monkeypatch.setattr(provision, "wait_until_ready", wait)
    task = parse_task_file(f"base_model: x\nrunner: {settings}\n", "x.yml")
    return provision._provision(RUN, Order(task, (cloud.name,)))


def test_dead_machines_are_given_back_and_passed_over(
    monkeypatch: pytest.MonkeyPatch, ended: list[str]
) -> None:
    """R6, R8: the next order avoids their places."""
    cloud = FakeCloud("runpod")
    pod = _provision(monkeypatch, cloud, dead=2)
    assert pod.id == "pod-3"
    assert ended == ["pod-1", "pod-2"]
    assert [order.avoid for order in cloud.asked] == [
        frozenset(),
        frozenset({"place 1"}),
        frozenset({"place 1", "place 2"}),
    ]


def test_a_cloud_of_dead_machines_ends_the_run(
    monkeypatch: pytest.MonkeyPatch, ended: list[str]
) -> None:
    """Bounded, with all of them given back."""
    with pytest.raises(NoCapacity, match=f"{MOST_DEAD} machines did not start"):
        _provision(monkeypatch, FakeCloud("runpod"), dead=99)
    assert len(ended) == MOST_DEAD


def test_a_machine_that_fails_of_what_the_next_one_has_too_is_the_only_one(
    monkeypatch: pytest.MonkeyPatch, ended: list[str]
) -> None:
    """H23, H56: the end of its log stands in the reason, and no second pod is rented."""
    boot = "daemon: manifest for me/image not found: manifest unknown"
    why = diagnose("no_capacity", "x", boot)
    monkeypatch.setattr(provision, "why_not_started", lambda pod, reason: why)
    with pytest.raises(TrainingFailed, match=r"still queued.*manifest unknown") as failed:
        _provision(monkeypatch, FakeCloud("runpod"), dead=99)
    assert failed.value.outcome == "config_error"
    assert ended == ["pod-1"]


def test_fewer_gpus_are_taken_where_no_cloud_has_the_first_count() -> None:
    """H39, only where the task file allows it; each order asks for one number."""
    asked: list[int] = []

    def rent(count: int) -> Pod:
        asked.append(count)
        if count > 1:
            raise NoCapacity("full")
        return Pod("pod-1", "axr-run", "vast", BEGAN, 1.0)

    assert with_fewer([4, 2, 1], rent).id == "pod-1"
    assert asked == [4, 2, 1]
    with pytest.raises(NoCapacity, match=r"^with gpu_count 4: full; with gpu_count 2: full$"):
        with_fewer([4, 2], rent)
    with pytest.raises(NoCapacity, match=r"^full$"):
        with_fewer([2], rent)


def test_a_machine_that_costs_more_than_was_listed_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, ended: list[str]
) -> None:
    """A price list may be behind: the pod itself says what it costs."""
    with pytest.raises(
        NoCapacity, match=r"costs \$1.00 per hour, more than max_price_per_hour: 0.5"
    ):
        _provision(monkeypatch, FakeCloud("runpod"), dead=0, settings="{max_price_per_hour: 0.5}")
    assert len(ended) == MOST_DEAD


def test_no_pod_is_asked_for_that_the_budget_can_not_pay(
    monkeypatch: pytest.MonkeyPatch, ended: list[str]
) -> None:
    """What is left must pay for a minute; the cloud is told so, and what it says is passed on."""
    cloud = FakeCloud("runpod")
    assert _provision(monkeypatch, cloud, dead=0, settings="{budget: 0.05}").id == "pod-1"
    assert cloud.asked[0].max_price_per_hour == pytest.approx(3.0)
    full = FakeCloud("runpod", NoCapacity("nothing within max_price_per_hour: 3"))
    with pytest.raises(TrainingFailed, match=r"^\$0.05.* of the budget is left") as none:
        _provision(monkeypatch, full, dead=0, settings="{budget: 0.05}")
    assert none.value.outcome == "budget"
    with pytest.raises(NoCapacity):  # enough is left: then it is want of room
        _provision(monkeypatch, full, dead=0, settings="{budget: 5}")
