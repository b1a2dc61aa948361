from dataclasses import replace

import pytest

from runner.idleness import Activity, Idle, Sight, Work, activity, due, idle_since

NOW = 100_000.0
QUIET = {"gpu_percent": 0.0, "cpu_percent": 1.0}
BUSY = {"gpu_percent": 90.0, "cpu_percent": 20.0}


def _sight(*work: Work, **changes: object) -> Sight:
    plain = Sight("running", NOW - 7200, work)
    return replace(plain, **changes)  # type: ignore[arg-type]


def _train(phase: str | None = None, *, seen: float = 0.0, began: float = 3600.0) -> Work:
    at = NOW - seen if phase else None
    return Work("train", "running", NOW - began, phase, at)


def _over(step: str, ago: float) -> Work:
    return Work(step, "over", NOW - ago)


@pytest.mark.parametrize(
    ("sight", "what"),
    [
        (_sight(container="starting"), "booting"),
        (_sight(), "booting"),
        (_sight(_over("prepare", 9000)), "booting"),  # that was on the pod before
        (_sight(Work("prepare", "running", NOW - 3000), **QUIET), "downloading"),
        (_sight(_train("loading", seen=3000), **QUIET), "downloading"),
        (_sight(_train("forwarding", seen=50_000), **QUIET), "fast-forwarding"),  # H38: for hours
        (_sight(_train("evaluating", seen=3000), **QUIET), "evaluating"),
        (_sight(_train("saving", seen=3000), **QUIET), "saving"),
        (_sight(Work("publish", "running", NOW - 3000), **QUIET), "saving"),
        (_sight(_train("training", seen=10), **QUIET), "training"),
        (_sight(_train("training", seen=3000), **BUSY), "training"),
        (_sight(_train("training", seen=3000), **QUIET), "idle"),
        (_sight(_train("training", seen=3000)), "unknown"),
        (_sight(_train(), **QUIET), "unknown"),
        (_sight(container="stopped"), "idle"),
        (_sight(container=None), "unknown"),
    ],
)
def test_what_a_pod_does(sight: Sight, what: str) -> None:
    """A download, an evaluation and a save are work, however little the GPUs have to do; telemetry
    that is missing is unknown.
    """
    assert activity(sight, NOW) == what


def test_a_trainer_that_waits_for_a_decision_is_not_idle_before_its_time_is_over() -> None:
    """After an alarm it waits 300 s to be sent back."""
    assert activity(_sight(_over("train", 290), **QUIET), NOW) == Activity.TRAINING
    assert activity(_sight(_over("train", 310), **QUIET), NOW) == Activity.IDLE


def test_a_step_that_waits_for_its_worker_is_not_idle() -> None:
    """H56: the parent gives it 10 minutes, then ends the run."""
    waiting = Work("train", "waiting", NOW - 500)
    assert activity(_sight(_over("prepare", 500), waiting, **QUIET), NOW) == Activity.BOOTING


def test_a_kept_pod_is_idle_as_soon_as_nobody_computes_there() -> None:
    """`one_shot: false`: who looks around there may compute, too."""
    over = _sight(_over("publish", 30), run_over=True, **QUIET)
    assert activity(over, NOW) == Activity.IDLE
    assert activity(replace(over, gpu_percent=60.0), NOW) == Activity.UNKNOWN
    assert activity(replace(over, gpu_percent=None), NOW) == Activity.UNKNOWN


def test_without_gpus_the_processor_decides() -> None:
    """A local pod has none to tell of."""
    local = _sight(_over("publish", 30), run_over=True, has_gpu=False, cpu_percent=2.0)
    assert activity(local, NOW) == Activity.IDLE
    assert activity(replace(local, cpu_percent=None), NOW) == Activity.UNKNOWN


def test_idle_is_what_was_idle_at_every_look() -> None:
    """Half of the time: told; all of it: ended."""
    idle = None
    said = []
    for minute in range(16):
        idle = idle_since(idle, Activity.IDLE, NOW + 60 * minute)
        said.append(due(idle, 15, NOW + 60 * minute))
    assert said == [None] * 8 + ["tell"] * 7 + ["end"]


@pytest.mark.parametrize("between", [Activity.UNKNOWN, Activity.DOWNLOADING])
def test_one_look_at_something_else_begins_anew(between: Activity) -> None:
    """What is unknown never counts as idle."""
    idle = idle_since(Idle(NOW, NOW), between, NOW + 60)
    assert idle is None
    assert idle_since(idle, Activity.IDLE, NOW + 120) == Idle(NOW + 120, NOW + 120)


def test_nothing_is_concluded_over_a_gap_in_the_looks() -> None:
    """A control machine that slept for hours has not seen what the pod did."""
    idle = idle_since(Idle(NOW, NOW + 60), Activity.IDLE, NOW + 7200)
    assert due(idle, 15, NOW + 7200) is None
