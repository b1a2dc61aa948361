import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from prefect.client.schemas.objects import FlowRun

from blocks.cloud import Pod
from runner.errors import ConfigError, KeyRefused, TrainingFailed, TryAgain
from runner.home import Home
from runner.installation import InstallationLimits
from tasks import installation
from tasks.installation import a_place, check_day, living_pods, match_queue, spent_today
from tasks.run import Run

DEFAULT = InstallationLimits()
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
RUN = Run("c0ffee00-1111", "x.yml", None, NOON)


class FakeCloud:
    """A cloud with so many pods, or one that can't be listed."""

    def __init__(self, name: str, pods: int | Exception, *, mine: str = "") -> None:
        self.name = name
        self.pods = pods
        self.mine = mine

    def list_ours(self) -> list[Pod]:
        """Pods of other runs of this installation, or of another one."""
        if isinstance(self.pods, Exception):
            raise self.pods
        return [
            Pod(f"{self.name}-{n}", f"axr-run-{n}", self.name, NOON, 1.0, installation=self.mine)
            for n in range(self.pods)
        ]


def _run(*bills: tuple[str, float, float | None], name: str = "run") -> FlowRun:
    """A run with pods at 1 $ an hour: cloud, hours before noon of its creation and of its end."""
    labels: dict[str, Any] = {}
    for n, (cloud, created, ended) in enumerate(bills):
        bill = {
            "cloud": cloud,
            "created": (NOON - timedelta(hours=created)).isoformat(),
            "terminated": ended if ended is None else (NOON - timedelta(hours=ended)).isoformat(),
            "price_per_hour": 1.0,
        }
        labels[f"axr.pod.{cloud}-{n}"] = json.dumps(bill)
    return FlowRun(id=uuid4(), flow_id=uuid4(), name=name, labels=labels)


@pytest.fixture
def set_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """An installation in memory: its limits, clouds and runs; the facts of RUN come back."""
    facts: dict[str, Any] = {}

    def make(
        limits: InstallationLimits | Exception = DEFAULT,
        *,
        clouds: tuple[FakeCloud, ...] = (),
        runs: tuple[FlowRun, ...] = (),
    ) -> dict[str, Any]:
        def read() -> InstallationLimits:
            if isinstance(limits, Exception):
                raise limits
            return limits

        monkeypatch.setattr(installation, "installation_limits", read)
        monkeypatch.setattr(installation, "installation_id", lambda: "us")
        monkeypatch.setattr(installation, "all_clouds", lambda: list(clouds))
        monkeypatch.setattr(installation, "_recent_runs", lambda since: list(runs))
        monkeypatch.setattr(installation, "match_queue", lambda limits: None)
        monkeypatch.setattr(installation, "home", lambda: Home(tmp_path))
        monkeypatch.setattr(installation, "remember", lambda run, found: facts.update(found))
        return facts

    return make


def test_a_run_waits_while_as_many_pods_live_as_may(set_up: Callable[..., Any]) -> None:
    """Over all clouds; it says so, and goes on when one is given back."""
    local, rented = FakeCloud("local", 1), FakeCloud("vast", 3)
    facts = set_up(clouds=(local, rented))
    said: list[str] = []

    def sleep(seconds: float) -> None:
        said.append(facts["stage"])
        rented.pods = 3 if len(said) < 3 else 2

    with a_place(RUN, lambda: None, sleep=sleep, now=lambda: NOON):
        assert facts["stage"] == ""
    assert said == ["waiting: 4 pods of at most 4"] * 3


def test_who_waits_can_still_be_cancelled_and_reach_its_deadline(
    set_up: Callable[..., Any],
) -> None:
    """The limits are looked at in each turn, so that the wait is bounded."""
    set_up(clouds=(FakeCloud("vast", 9),))

    def look() -> None:
        raise TrainingFailed("deadline", "not done within max_hours: 24")

    with pytest.raises(TrainingFailed, match="max_hours"):  # noqa: SIM117
        with a_place(RUN, look, sleep=lambda s: None, now=lambda: NOON):
            pytest.fail("there was no place")


def test_two_runs_never_take_the_same_place(set_up: Callable[..., Any], tmp_path: Path) -> None:
    """In the block the place is held; afterwards the pod itself is counted."""
    from runner.locks import is_free

    set_up(InstallationLimits(1))
    with a_place(RUN, lambda: None, sleep=lambda s: None, now=lambda: NOON):
        assert not is_free(Home(tmp_path).locks / "renting.lock")
    assert is_free(Home(tmp_path).locks / "renting.lock")


@pytest.mark.parametrize("unknown", [TryAgain("503"), KeyRefused("401")])
def test_a_cloud_that_can_not_be_listed_is_not_empty(
    set_up: Callable[..., Any], unknown: Exception
) -> None:
    """H21: what the runs know of it counts; what is confirmed gone does not."""
    runs = (_run(("vast", 2, None), ("vast", 5, 3), ("local", 2, None)),)
    set_up(clouds=(FakeCloud("vast", unknown), FakeCloud("local", 2)), runs=runs)
    assert living_pods(RUN.id, NOON) == {"vast-0", "local-0", "local-1"}


def test_own_pods_and_those_of_another_installation_take_no_place(
    set_up: Callable[..., Any],
) -> None:
    """A run that is revived has a pod; others may rent with the same account."""
    set_up(clouds=(FakeCloud("vast", 3), FakeCloud("runpod", 2, mine="others")))
    assert living_pods("run-1", NOON) == {"vast-0", "vast-2"}


def test_a_day_begins_at_midnight_utc(set_up: Callable[..., Any]) -> None:
    """Of a pod that has lived since yesterday, twelve hours are today's."""
    set_up(runs=(_run(("vast", 20, None)), _run(("local", 3, 1), ("vast", 30, 13))))
    assert spent_today(NOON) == pytest.approx(12 + 2)


def test_when_the_days_dollars_are_spent_nothing_is_rented_any_more(
    set_up: Callable[..., Any],
) -> None:
    """One clear message, and how to go on; no run sleeps until midnight."""
    set_up(InstallationLimits(dollars_per_day=12), runs=(_run(("vast", 20, None)),))
    with pytest.raises(TrainingFailed, match=r"dollars_per_day: 12 are used up: \$12.00") as ended:  # noqa: SIM117
        with a_place(RUN, lambda: None, now=lambda: NOON):
            pytest.fail("there was no money")
    assert ended.value.outcome == "budget"
    assert "resume c0ffee00" in str(ended.value)


def test_a_running_run_is_ended_when_the_day_has_cost_too_much(
    set_up: Callable[..., Any],
) -> None:
    """A limit that living pods may pass would be none; below it nobody is disturbed."""
    set_up(InstallationLimits(dollars_per_day=12.5), runs=(_run(("vast", 20, None)),))
    check_day(RUN, NOON)
    with pytest.raises(TrainingFailed):
        check_day(RUN, NOON + timedelta(hours=1))


def test_a_variable_that_can_not_be_read_ends_no_running_run(set_up: Callable[..., Any]) -> None:
    """A slip in the UI must not cost a training; but nothing is rented on it."""
    set_up(ConfigError("the Prefect variable axr_limits: expected …"))
    check_day(RUN, NOON)
    with pytest.raises(ConfigError):
        check_day(RUN, NOON, rents=True)


class FakeQueue:
    """The queue of runs in a Prefect API."""

    def __init__(self, limit: int | None, description: str | None) -> None:
        self.id = uuid4()
        self.concurrency_limit = limit
        self.description = description

    def read_work_queue_by_name(self, name: str, work_pool_name: str) -> "FakeQueue":
        """This one."""
        assert (name, work_pool_name) == ("runs", "control")
        return self

    def update_work_queue(self, _: Any, **changes: Any) -> None:
        """Take the changes."""
        vars(self).update(changes)


@pytest.mark.parametrize(
    ("queue", "pods", "limit"),
    [
        ((4, "4 runs at once, as the variable axr_limits says"), 8, 8),
        ((4, "4 runs at once, as the variable axr_limits says"), 2, 2),
        ((4, None), 8, 8),  # of an installation that had no variable
        ((4, "4 runs at once, as the variable axr_limits says"), None, None),
        ((None, "Any number of runs at once, as the variable axr_limits says"), 3, 3),
        ((4, "4 runs at once, as the variable axr_limits says"), 0, 1),
        ((2, "4 runs at once, as the variable axr_limits says"), 8, 2),  # the owner's
        ((2, None), 8, 2),
        ((4, "our own text"), 8, 4),
    ],
)
def test_the_queue_of_runs_follows_the_limit_unless_its_owner_gave_it_one(
    queue: tuple[int | None, str | None],
    pods: int | None,
    limit: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both limits in harmony: a raised one is not held back by the queue."""
    fake = FakeQueue(*queue)
    monkeypatch.setattr(installation, "api", lambda: fake)
    monkeypatch.setattr(installation, "write", lambda call: call())
    match_queue(InstallationLimits(pods))
    assert fake.concurrency_limit == limit
    match_queue(InstallationLimits(6))
    assert fake.concurrency_limit == (6 if limit == (pods or (1 if pods == 0 else None)) else limit)


def test_the_variable_is_read_from_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing one means the defaults."""
    for value, limits in ((None, InstallationLimits()), ({"pods": 2}, InstallationLimits(2))):
        variable = None if value is None else SimpleNamespace(value=value)
        server = SimpleNamespace(read_variable_by_name=lambda name, found=variable: found)
        monkeypatch.setattr(installation, "api", lambda server=server: server)
        assert installation.installation_limits() == limits
