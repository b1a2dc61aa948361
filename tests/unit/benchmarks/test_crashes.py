from typing import Any

import httpx
import pytest

from benchmarks.crash_faults import (
    AWAY,
    BAD_GATEWAY,
    DIES_AFTER,
    DIES_BEFORE,
    LOST,
    OUTAGE,
    REFUSED,
    Fault,
    Killed,
    Spoilt,
    Wire,
)
from benchmarks.crash_kills import most_at_once, names
from benchmarks.crash_points import Point, missing
from benchmarks.crashes import metrics, problem_of

CLOUD = 8000


def _result(**changes: Any) -> dict[str, Any]:
    """A point that ended as it should."""
    ended: dict[str, Any] = {
        "reached": True,
        "state": "COMPLETED",
        "outcome": "completed",
        "reason": "trained to the planned last step",
        "left": 0,
        "at_once": 1,
        "model_kept": True,
    }
    return {**ended, **changes}


def test_only_points_that_were_reached_count() -> None:
    """The last of each series is a run that came to its end before."""
    found = metrics({"a-1": _result(), "a-2": _result(), "a-3": _result(reached=False, left=1)})
    assert (found["points"]["value"], found["pods_left"]["value"]) == (2, 0)
    assert found["completed"]["value"] == 100.0
    assert metrics({"a-1": _result(reached=False)}) == {}


@pytest.mark.parametrize(
    ("metric", "changes"),
    [
        ("pods_left", {"left": 2}),
        ("two_pods", {"at_once": 2}),
        ("models_lost", {"model_kept": False}),
        ("not_ended", {"state": "RUNNING"}),
        ("completed", {"outcome": "crash"}),
    ],
)
def test_each_thing_that_may_not_happen_is_counted_and_named(
    metric: str, changes: dict[str, Any]
) -> None:
    """A target that can't be missed says nothing."""
    wrong = _result(**changes)
    found = metrics({"a-1": _result(), "a-2": wrong}, "kill_")[f"kill_{metric}"]
    assert found["value"] != found["target"]
    assert problem_of("a-2", wrong)
    assert problem_of("a-1", _result()) is None


def test_a_run_without_a_key_may_end_otherwise_but_not_without_a_reason() -> None:
    """It is no part of those that must complete."""
    name = "vast-plain-cloud-no-key-003"
    refused = _result(state="FAILED", outcome="config_error", reason="the key is refused")
    assert problem_of(name, refused) is None
    assert problem_of(name, {**refused, "reason": None, "outcome": None})
    assert "completed" not in metrics({name: refused})


def test_the_name_of_a_point_says_where_and_what() -> None:
    """Modes have dashes too."""
    point = Point.of("vast-lost-cloud-dies-after-007")
    assert point == Point("vast", "lost", Fault("cloud", DIES_AFTER, 7))
    assert Point.of("runpod-plain-none").fault is None


def test_a_series_goes_on_until_a_run_does_not_reach_its_point() -> None:
    """As many points as calls were made, then one more at a time."""
    unspoilt = {"runpod-lost-none": {"reached": False, "calls": {"cloud": 2, "api": 0}}}
    series = "runpod-lost-cloud-lost"

    def left(done: dict[str, Any]) -> list[str]:
        return [name[-3:] for name in missing({**unspoilt, **done}) if name.startswith(series)]

    assert missing({}) == []
    assert left({}) == ["001", "002"]
    done = {f"{series}-001": _result(), f"{series}-002": _result()}
    assert left(done) == ["003"]
    assert left({**done, f"{series}-003": _result(reached=False)}) == []


class Said:
    """A world that counts what arrives."""

    def __init__(self, fault: Fault | None) -> None:
        self.arrived = 0
        self.now = 0.0
        self.wire = Wire({CLOUD: "cloud"}, lambda: self.now)
        self.wire.begin(fault)

    def call(self) -> Any:
        """One call to the cloud; the status, or the error."""

        def send() -> int:
            self.arrived += 1
            return 200

        spoilt = Spoilt(
            lambda: httpx.ConnectError("refused"), lambda: httpx.ReadTimeout("lost"), int
        )
        try:
            return self.wire.carry("GET /", CLOUD, send, spoilt)
        except (httpx.HTTPError, Killed) as error:
            return type(error).__name__


@pytest.mark.parametrize(
    ("mode", "second", "arrived"),
    [
        (REFUSED, "ConnectError", 2),
        (LOST, "ReadTimeout", 3),
        (BAD_GATEWAY, 502, 3),
    ],
)
def test_the_nth_call_fails_once(mode: str, second: Any, arrived: int) -> None:
    """Done or not done is the difference between two machines and one."""
    world = Said(Fault("cloud", mode, 2))
    with world.wire.life():
        assert [world.call() for _ in range(3)] == [200, second, 200]
    assert world.arrived == arrived
    assert world.wire.struck


@pytest.mark.parametrize(("mode", "arrived"), [(DIES_BEFORE, 1), (DIES_AFTER, 2)])
def test_the_dead_say_nothing_more(mode: str, arrived: int) -> None:
    """What a `finally` would still call is not called by a process that was killed."""
    world = Said(Fault("cloud", mode, 2))
    with world.wire.life():
        assert [world.call() for _ in range(3)] == [200, "Killed", "Killed"]
    assert world.arrived == arrived
    with world.wire.life():
        assert world.call() == 200, "it is revived"


def test_an_outage_is_everybodys_and_ends() -> None:
    """The keeper and the sweep meet it too."""
    world = Said(Fault("cloud", AWAY, 1))
    with world.wire.life():
        assert world.call() == "ConnectError"
    with world.wire.spoken_by("keeper"):
        assert world.call() == "ConnectError"
        world.now = OUTAGE + 1
        assert world.call() == 200
    assert world.call() == 200


@pytest.mark.parametrize(
    ("second", "most"), [("2026-01-01T00:00:20.000Z", 2), ("2026-01-01T00:01:00.000Z", 1)]
)
def test_pods_that_lived_at_the_same_time(second: str, most: int) -> None:
    """From what the clouds say of pods that are gone."""
    pods = [
        {"createdAt": "2026-01-01T00:00:00.000Z", "endedAt": "2026-01-01T00:00:30.000Z"},
        {"createdAt": second},
    ]
    assert most_at_once(pods) == most


def test_each_victim_is_killed_twice_on_each_cloud() -> None:
    """At least 24 kills."""
    assert len(names()) == len(set(names())) == 24
