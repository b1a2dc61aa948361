"""When a trainer counts as hung: timelines of healthy ones, and of some that stand still."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise, repeat

import pytest

from pod.pace import LIMITS, LONGEST_LOOK, Hang, Pace
from pod.pulse import Phase, Pulse

Sign = tuple[float, int, Phase]  # seconds until this sign of life, its step and phase
LOOK = 1.0


def signs(
    durations: Iterable[float],
    *,
    eval_every: int = 0,
    prediction: float = 0.5,
    predictions: int = 40,
    save_every: int = 0,
    save: float = 0.0,
    loading: float = 60.0,
) -> Iterator[Sign]:
    """A training: loading, then steps of these durations, evaluations and saves between them."""
    yield loading, 0, "loading"
    for step, seconds in enumerate(durations, 1):
        yield seconds, step, "training"
        if eval_every and step % eval_every == 0:
            yield 0.0, step, "evaluating"
            for _ in range(predictions):
                yield prediction, step, "evaluating"
            yield 0.2, step, "training"
        if save_every and step % save_every == 0:
            yield 0.0, step, "saving"
            yield save, step, "training"


def look_on(
    pace: Pace, timeline: Iterable[Sign], *, busy: bool = True, start: float = 0.0
) -> list[Hang]:
    """Every look at a timeline; looks come each second, and more seldom in long silences."""
    hangs: list[Hang] = []
    now = at = start
    pulse: Pulse | None = None
    for wait, step, phase in timeline:
        at += wait
        while now + LOOK < at:
            now = min(now + (LOOK if at - now < 100 else LONGEST_LOOK), at)
            hang = pace.look(now, pulse, busy=busy)
            if hang is not None:
                return [*hangs, hang]
        pulse = Pulse(at, step, phase)
        now = max(now, at)
        hang = pace.look(now, pulse, busy=busy)
        if hang is not None:
            return [*hangs, hang]
    return hangs


def log_normal(median: float, sigma: float, n: int, seed: int) -> list[float]:
    rng = random.Random(seed)
    return [median * rng.lognormvariate(0, sigma) for _ in range(n)]


def bimodal(short: float, long: float, share: float, n: int, seed: int) -> list[float]:
    rng = random.Random(seed)
    return [long if rng.random() < share else short for _ in range(n)]


HEALTHY: dict[str, Callable[[int], Iterator[Sign]]] = {
    "constant": lambda seed: signs(repeat(2.0, 800)),
    "fast steps": lambda seed: signs(repeat(0.05, 5000)),
    "steps of five minutes": lambda seed: signs(repeat(300.0, 60)),
    "a step an hour long": lambda seed: signs(repeat(3500.0, 20)),
    "jitter": lambda seed: signs(log_normal(3.0, 0.5, 600, seed)),
    "wild jitter": lambda seed: signs(log_normal(3.0, 1.0, 600, seed)),
    "wild jitter, long steps": lambda seed: signs(log_normal(60.0, 0.7, 200, seed)),
    "two kinds of steps": lambda seed: signs(bimodal(1.0, 40.0, 0.05, 600, seed)),
    "two kinds of long steps": lambda seed: signs(bimodal(20.0, 200.0, 0.1, 200, seed)),
    "evaluations": lambda seed: signs(repeat(1.0, 400), eval_every=50),
    "a slow evaluation": lambda seed: signs(
        repeat(1.0, 300), eval_every=100, prediction=400.0, predictions=3
    ),
    "saves a hundred times as long": lambda seed: signs(repeat(9.0, 300), save_every=50, save=900),
    "saves to a slow disk": lambda seed: signs(repeat(60.0, 60), save_every=20, save=6000),
    "compiles for ten minutes": lambda seed: signs([*repeat(1.0, 200)], loading=600.0),
    "compiles again": lambda seed: signs([*repeat(1.0, 30), 240.0, *repeat(1.0, 30), 500.0]),
    "slows down": lambda seed: signs([2.0 * 1.02**n for n in range(300)]),
    "a slow epoch's begin": lambda seed: signs([*repeat(0.5, 400), 550.0] * 3),
    "its disk stalls": lambda seed: signs([*repeat(1.0, 100), 590.0, *repeat(1.0, 100)]),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_trainings_never_hang(name: str) -> None:
    """Not one false hang: it would cost the steps since the last checkpoint."""
    for seed in range(5):
        assert look_on(Pace(), HEALTHY[name](seed)) == [], name


@pytest.mark.parametrize("name", HEALTHY)
def test_every_training_that_stops_for_good_is_noticed(name: str) -> None:
    """Within the hour or ten of its slowest steps, whatever it did before."""
    timeline = list(HEALTHY[name](1))
    slow = max(seconds for seconds, _, phase in timeline if phase == "training")
    last = timeline[-1]
    stopped = [*timeline, (10**6, last[1] + 1, "training")]
    (hang,) = look_on(Pace(), stopped)
    assert (hang.step, hang.phase, hang.idle) == (last[1], "training", False)
    assert hang.seconds <= max(3600.0, 10 * slow) + LONGEST_LOOK


def test_a_hang_is_noticed_ten_minutes_after_a_known_pace() -> None:
    """The reason says how long, how long usually, and where."""
    (hang,) = look_on(Pace(), [*signs(repeat(2.0, 100)), (5000.0, 101, "training")])
    assert 600 < hang.seconds <= 600 + LONGEST_LOOK
    assert hang.usual == 2.0
    assert hang.reason == (
        f"no step for {hang.seconds:.0f} s (usual: 2 s) at step 100 while training"
    )


def test_little_is_a_hang_before_anything_is_known() -> None:
    """An hour for the second step; half of that where an earlier attempt has told the pace."""
    timeline: list[Sign] = [(5.0, 0, "loading"), (30.0, 1, "training"), (9999.0, 2, "training")]
    (hang,) = look_on(Pace(), timeline)
    assert 3600 < hang.seconds <= 3600 + LONGEST_LOOK
    told = Pace()
    for _ in range(50):
        told.hear(2.0)
    (hang,) = look_on(told, timeline)
    assert 1800 < hang.seconds <= 1800 + LONGEST_LOOK
    assert hang.usual == 2.0


def test_slow_steps_of_earlier_attempts_count() -> None:
    """A follower that comes to a running trainer reads the pace in the events."""
    pace = Pace()
    for _ in range(50):
        pace.hear(900.0)
    assert pace.limit("training") == 9000.0


@pytest.mark.parametrize("jump", [-7200.0, 7200.0, 10**8])
def test_a_stepped_clock_is_no_hang(jump: float) -> None:
    """The pulse's time is compared with nothing: NTP, or a suspended machine, may set it."""
    pace = Pace()
    for second in range(1, 400):
        t = second + (jump if second > 200 else 0.0)
        assert pace.look(float(second), Pulse(t, second, "training")) is None
    assert pace.usual == pytest.approx(1.0)


def test_a_looker_that_was_away_counts_little() -> None:
    """Suspended for hours together with the trainer: no time in which the trainer stood still."""
    pace = Pace()
    assert look_on(pace, signs(repeat(1.0, 100))) == []
    pulse = Pulse(200.0, 100, "training")
    assert pace.look(300.0, pulse) is None
    for away in (5000.0, 50_000.0, 500_000.0):
        assert pace.look(away, pulse) is None


def test_a_download_that_stands_still_is_a_hang() -> None:
    """H25: bytes and CPU tell, not the living process; one that moves has two hours."""
    frozen: list[Sign] = [(10.0, 0, "loading"), (99_999.0, 1, "training")]
    (hang,) = look_on(Pace(), frozen, busy=False)
    assert (hang.phase, hang.idle) == ("loading", True)
    assert 1200 < hang.seconds <= 1200 + LONGEST_LOOK
    assert hang.reason.endswith("at step 0 while loading; nothing was computed, read or written")
    (moving,) = look_on(Pace(), frozen)
    assert 7200 < moving.seconds <= 7200 + LONGEST_LOOK
    (nothing,) = look_on(Pace(), [(99_999.0, 0, "loading")], busy=False)  # not even a pulse
    assert (nothing.step, nothing.phase) == (0, "loading")


def test_a_resumed_run_may_read_and_drop_rows_for_hours() -> None:
    """H38: fast-forwarding looks like a hang, but computes; the first start has no such time."""
    forward = list(signs(repeat(1.0, 50), loading=6 * 3600.0))
    assert look_on(Pace(resumed=True), forward) == []
    assert look_on(Pace(), forward) != []


def test_a_save_that_writes_nothing_is_a_hang() -> None:
    """A slow disk has hours, one that is gone half an hour."""
    stuck = [*signs(repeat(1.0, 50)), (0.0, 50, "saving"), (99_999.0, 50, "training")]
    (hang,) = look_on(Pace(), stuck, busy=False)
    assert (hang.phase, hang.idle) == ("saving", True)
    assert 1800 < hang.seconds <= 1800 + LONGEST_LOOK
    (slow,) = look_on(Pace(), stuck)
    assert slow.seconds > LIMITS["saving"].known


def test_an_evaluation_that_stops_is_a_hang_of_its_own() -> None:
    """Its pace is known apart from that of the steps."""
    timeline = list(signs(repeat(1.0, 100), eval_every=50))
    assert timeline.pop() == (0.2, 100, "training")
    (hang,) = look_on(Pace(), [*timeline, (99_999.0, 100, "training")])
    assert (hang.phase, hang.step) == ("evaluating", 100)
    assert 1200 < hang.seconds <= 1200 + LONGEST_LOOK


def test_work_proves_nothing_in_a_step() -> None:
    """Ranks that wait for another one compute at full load."""
    stopped: list[Sign] = [*signs(repeat(2.0, 100)), (5000.0, 101, "training")]
    assert look_on(Pace(), stopped, busy=True) == look_on(Pace(), stopped, busy=False)


def test_the_users_limit_takes_the_floors_place() -> None:
    """`resume.hang_minutes`: in training as it is, elsewhere only where it is longer."""
    pace = Pace(least=6.0)
    assert pace.limit("training") == 6.0
    assert pace.limit("evaluating") == 3600.0
    assert Pace(least=9 * 3600.0).limit("evaluating") == 9 * 3600.0
    stopped: list[Sign] = [*signs(repeat(0.1, 20)), (100.0, 21, "training")]
    (hang,) = look_on(pace, stopped)
    assert hang.seconds < 6.0 + LONGEST_LOOK


def test_the_usual_is_a_steps_not_a_looks() -> None:
    """Fast steps: several of them between two looks."""
    pace = Pace()
    for second in range(100):
        assert pace.look(float(second), Pulse(second, 20 * second, "training")) is None
    assert pace.usual == pytest.approx(0.05)


def test_signs_within_a_step_are_signs() -> None:
    """Gradient accumulation: steps of 20 minutes with a sign each 10 s are watched by the sign."""
    pace = Pace()
    times = [10.0 * n for n in range(1, 1000)]
    for earlier, now in pairwise(times):
        assert now - earlier <= LONGEST_LOOK
        assert pace.look(now, Pulse(now, int(now / 1200), "training")) is None
    assert pace.limit("training") == LIMITS["training"].known
    assert pace.usual == pytest.approx(1200.0)
