import gzip
import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Iterable
from itertools import count
from pathlib import Path

import pytest

from pod.spikes import HISTORY, Alarm, SpikeDetector

NAN, INF = float("nan"), float("inf")
ROOT = Path(__file__).resolve().parents[3]


def losses(
    n: int, *, start: float = 3.0, end: float = 1.5, noise: float = 0.04, seed: int = 0
) -> list[float]:
    """A curve that falls and flattens, with log-normal noise."""
    rng = random.Random(seed)
    fall = [end + (start - end) * math.exp(-i / 30) for i in range(n)]
    return [level * math.exp(rng.gauss(0, noise)) for level in fall]


def feed(
    detector: SpikeDetector,
    values: Iterable[float | None],
    *,
    first: int = 1,
    every: int = 1,
    grad_norm: float | None = 1.0,
) -> Alarm | None:
    """Give the values as log entries; the alarm of the last, if any."""
    alarm = None
    for step, value in zip(count(first, every), values, strict=False):
        alarm = detector.update(step, value, grad_norm)
    return alarm


def scaled(
    values: list[float], factor: float, *, since: int, until: int | None = None
) -> list[float]:
    """The values with those in [since, until) multiplied."""
    return [
        value * factor if since <= i < (until or len(values)) else value
        for i, value in enumerate(values)
    ]


# ---------------------------------------------------------------- healthy runs


@pytest.mark.parametrize("noise", [0.01, 0.05, 0.3])
@pytest.mark.parametrize("seed", range(5))
def test_a_noisy_healthy_run_raises_no_alarm(noise: float, seed: int) -> None:
    """Noise alone, even of 30 % a point, is no evidence that lasts."""
    detector = SpikeDetector()
    assert feed(detector, losses(300, noise=noise, seed=seed)) is None


@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("factor", [2.0, 10.0, 1e6])
def test_a_blip_of_up_to_three_entries_heals(length: int, factor: float) -> None:
    """Single bad batches, however bad, are forgotten."""
    detector = SpikeDetector()
    curve = scaled(losses(120), factor, since=60, until=60 + length)
    assert feed(detector, curve) is None
    assert detector.suspect_since is None


def test_epoch_staircases_of_a_memorised_tail_are_healthy() -> None:
    """Steps down at epochs and noise in losses below 0.1 raise no alarm."""
    rng = random.Random(1)
    curve = [2.0 * 0.4 ** (i // 60) * math.exp(rng.gauss(0, 0.25)) for i in range(360)]
    assert min(curve) < 0.05
    assert feed(SpikeDetector(), curve) is None


def test_a_start_up_bump_heals() -> None:
    """A run that triples its loss at the third entry and comes back within 20 is healthy."""
    bump = [11.1, 9.6, 10.1, 35, 47, 48, 41, 32, 38, 30, 26, 24, 21, 20, 18, 15, 13, 11, 9, 9]
    assert feed(SpikeDetector(), [*bump, *losses(100, start=9.0, end=6.0)]) is None


def test_a_legitimate_tiny_loss_passes() -> None:
    """Losses that fall to 0.0003, rounded to four digits and at times to 0.0, are healthy (H30)."""
    rng = random.Random(2)
    curve = [
        round(max(0.0003, math.exp(-i / 12)) * math.exp(rng.gauss(0, 0.7)), 4) for i in range(200)
    ]
    curve[150] = curve[151] = 0.0
    assert feed(SpikeDetector(), curve, grad_norm=0.01) is None


def test_lone_bad_grad_norms_are_benign() -> None:
    """One to three NaN or infinite grad_norms beside normal losses raise no alarm."""
    detector = SpikeDetector()
    for step, loss in enumerate(losses(100)):
        bad = {0: NAN, 1: INF, 40: NAN, 41: NAN, 42: INF, 70: NAN}
        assert detector.update(step, loss, bad.get(step, 0.8)) is None


@pytest.mark.parametrize("level", [-1.5, 0.0, 0.01])
def test_losses_around_zero_are_compared_by_difference(level: float) -> None:
    """RL losses of either sign are healthy noise, and a lasting jump of them is an alarm."""
    rng = random.Random(3)
    curve = [level + rng.gauss(0, 0.02) for _ in range(150)]
    assert feed(SpikeDetector(), curve) is None
    alarm = feed(SpikeDetector(), [v + (2.0 if i >= 100 else 0) for i, v in enumerate(curve)])
    assert alarm is not None
    assert (alarm.kind, alarm.onset_step) == ("jump", 101)


def test_a_loss_that_grows_from_zero_by_its_kl_term_is_healthy() -> None:
    """A run that starts at exactly 0 and grows slowly (GRPO) has no level to rise from."""
    curve = [round(0.0001 * i, 4) for i in range(400)]
    assert feed(SpikeDetector(), curve, grad_norm=0.3) is None


def test_a_loss_of_zero_with_a_real_gradient_is_how_some_rl_runs_look() -> None:
    """Exact zeros from the start beside finite gradients are no collapse."""
    assert feed(SpikeDetector(), [0.0] * 100, grad_norm=0.3) is None


# ---------------------------------------------------------------- runs that go wrong


@pytest.mark.parametrize("every", [1, 5, 10])
def test_a_jump_is_found_within_four_entries_and_dated_exactly(every: int) -> None:
    """The onset is a step of the log, whatever logging_steps is."""
    curve = scaled(losses(80), 5.0, since=50)
    detector = SpikeDetector()
    alarm = feed(detector, curve, first=every, every=every)
    assert alarm is not None
    assert alarm.kind == "jump"
    assert alarm.onset_step == 51 * every
    assert alarm.step <= 54 * every
    assert str(alarm.onset_step) in alarm.reason


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("factor", [1.6, 2.0, 5.0])
def test_the_onset_of_a_jump_is_right_within_two_entries(seed: int, factor: float) -> None:
    """Noise before or after the jump does not move its date by more than two."""
    curve = scaled(losses(100, noise=0.08, seed=seed), factor, since=60)
    alarm = feed(SpikeDetector(), curve)
    assert alarm is not None
    assert abs(alarm.onset_step - 61) <= 2


@pytest.mark.parametrize("seed", range(5))
def test_a_drift_is_found_and_dated_near_its_beginning(seed: int) -> None:
    """A rise of 3 % an entry is an alarm before the loss has tripled."""
    curve = losses(200, seed=seed)
    curve = [v * min(5.0, 1.03 ** max(0, i - 99)) for i, v in enumerate(curve)]
    alarm = feed(SpikeDetector(), curve)
    assert alarm is not None
    assert alarm.step < 137
    assert 96 <= alarm.onset_step <= 106


def test_a_short_run_is_watched_from_about_ten_entries() -> None:
    """A jump at entry 11 of 15 is found."""
    alarm = feed(SpikeDetector(), scaled(losses(15), 4.0, since=10))
    assert alarm is not None
    assert alarm.onset_step == 11


def test_a_start_that_blows_up_tenfold_and_stays_is_an_alarm() -> None:
    """What a start-up bump is allowed, a ruined start is not."""
    rng = random.Random(4)
    curve = [9.3, 6.7, 6.3, *(rng.uniform(50, 90) for _ in range(40))]
    alarm = feed(SpikeDetector(), curve)
    assert alarm is not None
    assert alarm.onset_step == 4


def test_a_surge_of_grad_norm_dates_the_onset_before_the_loss() -> None:
    """Gradients explode one to three entries before the loss; checkpoints from then are bad."""
    detector = SpikeDetector()
    alarm = None
    for step, loss in enumerate(scaled(losses(70), 4.0, since=60)):
        alarm = detector.update(step, loss, 500.0 if step >= 58 else 1.0)
    assert alarm is not None
    assert alarm.onset_step == 58
    assert "grad_norm" in alarm.reason


@pytest.mark.parametrize("broken", [NAN, INF, -INF])
def test_a_non_finite_loss_is_an_alarm_at_the_second_entry(broken: float) -> None:
    """A NaN is not greater than a threshold, yet it is an alarm (H29)."""
    detector = SpikeDetector()
    assert feed(detector, [*losses(20), broken]) is None
    assert detector.suspect_since == 21
    alarm = detector.update(22, broken, 1.0)
    assert alarm is not None
    assert (alarm.kind, alarm.onset_step, alarm.step) == ("nonfinite", 21, 22)


def test_one_lone_nan_loss_heals() -> None:
    """The next finite loss clears it, and it does not spoil the level."""
    curve = losses(60)
    curve[30] = NAN
    detector = SpikeDetector()
    assert feed(detector, curve) is None
    assert feed(detector, [15.0] * 4, first=61) is not None


def test_a_grad_norm_that_stays_nan_beside_a_normal_loss_is_an_alarm() -> None:
    """Five lines of loss 1.0 with grad_norm nan are a dead run, from its first line (H29)."""
    detector = SpikeDetector()
    assert feed(detector, [1.0] * 3, grad_norm=NAN) is None
    alarm = feed(detector, [1.0] * 2, first=4, grad_norm=NAN)
    assert alarm is not None
    assert (alarm.kind, alarm.onset_step) == ("nonfinite", 1)


def test_strict_grad_norm_takes_a_single_nan_for_fatal() -> None:
    """In one's own trainer no finite parameter is left after it."""
    detector = SpikeDetector(strict_grad_norm=True)
    feed(detector, losses(5))
    alarm = detector.update(6, 1.9, NAN)
    assert alarm is not None
    assert (alarm.kind, alarm.onset_step) == ("nonfinite", 6)


@pytest.mark.parametrize(("grad_norm", "entries"), [(NAN, 1), (0.0, 3), (None, 3), (0.7, 3)])
def test_a_loss_of_exactly_zero_is_a_collapse(grad_norm: float | None, entries: int) -> None:
    """The Trainer writes 0.0 for NaN; with a NaN gradient beside it there is no doubt (H30)."""
    detector = SpikeDetector()
    feed(detector, [2.3, 2.2, 2.1])
    for step in range(4, 4 + entries - 1):
        assert detector.update(step, 0.0, grad_norm) is None
    alarm = detector.update(3 + entries, 0.0, grad_norm)
    assert alarm is not None
    assert (alarm.kind, alarm.onset_step) == ("collapse", 4)


def test_a_run_that_logs_zero_from_its_first_entry_is_a_collapse() -> None:
    """No level is needed where neither loss nor gradient ever was a number to train by."""
    alarm = feed(SpikeDetector(), [0.0] * 5, grad_norm=0.0)
    assert alarm is not None
    assert (alarm.kind, alarm.onset_step) == ("collapse", 1)


def test_losses_that_vanish_from_the_log_pass_for_nan() -> None:
    """JSON has no NaN, so null is what a log file holds in its place."""
    alarm = feed(SpikeDetector(), [*losses(20), None, None, None], grad_norm=None)
    assert alarm is not None
    assert (alarm.kind, alarm.onset_step) == ("nonfinite", 21)


def test_entries_that_never_hold_a_loss_are_ignored() -> None:
    """Evaluations between training entries, as regular as they are, raise no alarm."""
    curve = [value for loss in losses(40) for value in (None, None, None, None, loss)]
    assert feed(SpikeDetector(), curve) is None


# ---------------------------------------------------------------- axolotl's own threshold


def test_threshold_patience_counts_distinct_entries_not_steps() -> None:
    """One bad line, seen again at every step until the next, is one (H28)."""
    detector = SpikeDetector(threshold=5.0, threshold_patience=3)
    for step, loss in [(10, 1.1), (20, 1.0), (30, 9.0), (40, 1.0), (50, 1.0)]:
        for _ in range(10):
            assert detector.update(step, loss, 1.0) is None


def test_threshold_is_an_alarm_after_its_patience_and_nan_does_not_reset_it() -> None:
    """Three entries above it, be it in the warm-up and with a NaN between."""
    detector = SpikeDetector(threshold=5.0, threshold_patience=3)
    alarm = feed(detector, [1.1, 9.0, 9.1, NAN, 9.2])
    assert alarm is not None
    assert (alarm.kind, alarm.onset_step, alarm.step) == ("jump", 2, 5)


# ---------------------------------------------------------------- the contract


def test_the_first_alarm_is_latched_until_reset() -> None:
    """Later entries return the same alarm; after reset the run goes on from before the onset."""
    detector = SpikeDetector()
    alarm = feed(detector, scaled(losses(60), 5.0, since=50))
    assert alarm is not None
    assert alarm == detector.alarm == detector.update(61, 1.5, 1.0) == detector.update(3, NAN, NAN)
    assert detector.suspect_since == alarm.onset_step
    detector.reset()
    assert detector.alarm is None
    assert detector.suspect_since is None
    assert feed(detector, losses(90)[45:], first=46) is None


def test_suspect_since_names_the_onset_while_evidence_gathers() -> None:
    """Checkpoints saved from then on are not known to be healthy."""
    detector = SpikeDetector()
    feed(detector, losses(50))
    assert detector.suspect_since is None
    for step in (51, 52, 53):
        assert detector.update(step, 9.0, 1.0) is None
        assert detector.suspect_since == 51


def test_repeated_entries_are_ignored() -> None:
    """An evaluation or a second line for the same step changes nothing (H42)."""
    once, often = SpikeDetector(), SpikeDetector()
    for step, loss in enumerate(scaled(losses(60), 5.0, since=57)):
        once.update(step, loss, 1.0)
        for value in (loss, 50.0, NAN, None):
            often.update(step, value, None if value is None else 1.0)
    assert often.state_dict() == once.state_dict()
    assert often.alarm is None


@pytest.mark.parametrize("back_to", [1, 5, 41, 58])
def test_going_back_leaves_a_detector_as_if_the_dropped_entries_never_came(back_to: int) -> None:
    """A resumed run is judged by its own entries, not by those of the abandoned branch (H42)."""
    curve = losses(100)
    resumed, straight = SpikeDetector(), SpikeDetector()
    feed(resumed, scaled(curve[:60], 6.0, since=57))
    assert resumed.suspect_since is not None
    feed(resumed, curve[back_to - 1 :], first=back_to)
    feed(straight, curve)
    assert resumed.state_dict() == straight.state_dict()
    assert resumed.alarm is None


def test_a_far_rewind_in_a_long_run_does_not_fire_on_old_history() -> None:
    """Beyond the kept history the oldest entries are thinned, not lost."""
    curve = losses(3 * HISTORY, start=8.0, end=1.0)
    detector = SpikeDetector()
    feed(detector, curve)
    for back_to in (2 * HISTORY, HISTORY // 2, 40):
        assert feed(detector, curve[back_to - 1 : back_to + 60], first=back_to) is None
        assert detector.suspect_since is None


def test_memory_is_bounded() -> None:
    """Three histories of entries leave no more than the kept history."""
    detector = SpikeDetector()
    feed(detector, (2.0 + 0.1 * (i % 7) for i in range(3 * HISTORY)))
    state = detector.state_dict()
    assert len(state["entries"]) <= HISTORY
    assert len(json.dumps(state)) < 1_000_000


@pytest.mark.parametrize("cut", [5, 30, 58, 64])
def test_state_survives_json(cut: int) -> None:
    """A detector loaded from JSON goes on exactly like the one that wrote it, alarm included."""
    curve = scaled(losses(70, noise=0.1), 5.0, since=56)
    first, second = SpikeDetector(), SpikeDetector()
    feed(first, curve[:cut])
    second.load_state_dict(json.loads(json.dumps(first.state_dict(), allow_nan=False)))
    for step, loss in enumerate(curve[cut:], cut + 1):
        assert second.update(step, loss, 1.0) == first.update(step, loss, 1.0)
    assert second.state_dict() == first.state_dict()
    assert second.alarm is not None


def test_a_detector_of_one_run_judges_another_like_new_after_loading_an_empty_state() -> None:
    """load_state_dict replaces all there was."""
    detector = SpikeDetector()
    feed(detector, scaled(losses(60), 5.0, since=40))
    detector.load_state_dict(SpikeDetector().state_dict())
    assert detector.alarm is None
    assert feed(detector, losses(60, start=90, end=50)) is None


def test_no_input_breaks_the_detector() -> None:
    """Any mixture of numbers, of any size and sign, and of steps is taken without an error."""
    rng = random.Random(5)
    values = [None, NAN, INF, -INF, 0.0, -0.0, 1e308, -1e308, 5e-324, 1.0, -1.0, 0.3]
    for _ in range(60):
        detector = SpikeDetector(sensitivity=rng.choice([0.1, 1, 10]), patience=rng.choice([1, 9]))
        for _ in range(60):
            detector.update(rng.randrange(-5, 60), rng.choice(values), rng.choice(values))
            if rng.random() < 0.1:
                detector.reset()
            json.dumps(detector.state_dict(), allow_nan=False)


@pytest.mark.parametrize("since", [13, 18, 25])
@pytest.mark.parametrize("then", [7.5, 9.0])
def test_a_jump_out_of_a_steep_young_fall_is_found_at_its_onset(since: int, then: float) -> None:
    """A level that lags and a scatter that the fall has widened do not hide it."""
    rng = random.Random(3)
    fall = [6.3 * math.exp(-i / 22) * math.exp(rng.gauss(0, 0.03)) for i in range(since)]
    ruined = [then * math.exp(rng.gauss(0, 0.03)) for _ in range(4)]
    alarm = feed(SpikeDetector(), [*fall, *ruined])
    assert alarm is not None
    assert alarm.kind == "jump"
    assert (alarm.onset_step, alarm.step) == (since + 1, since + 4)


def test_a_jump_that_is_followed_by_a_larger_one_began_with_the_first() -> None:
    """The weights were ruined by what made the loss rise the first time."""
    fall = [6.3 * math.exp(-i / 22) for i in range(20)]
    alarm = feed(SpikeDetector(), [*fall, 7.4, 6.7, 35.2, 33.3])
    assert alarm is not None
    assert (alarm.onset_step, alarm.kind) == (21, "jump")


def test_patience_and_sensitivity_do_what_they_say() -> None:
    """More patience waits longer for the same jump; less sensitivity finds it later or never."""
    curve = scaled(losses(100), 3.0, since=50)
    steps = {}
    for patience in (1, 4, 8):
        alarm = feed(SpikeDetector(patience=patience), curve)
        assert alarm is not None
        steps[patience] = alarm.step
    assert steps == {1: 51, 4: 54, 8: 58}
    mild = scaled(losses(70), 1.4, since=50)
    assert feed(SpikeDetector(sensitivity=2), mild) is not None
    assert feed(SpikeDetector(sensitivity=0.1), mild) is None


def test_it_imports_with_a_bare_python() -> None:
    """Neither site packages nor torch are needed on the pod."""
    code = "import sys, pod.spikes; sys.exit(bool({'torch', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, check=False)
    assert done.returncode == 0


# ---------------------------------------------------------------- real curves


def test_short_real_curves_are_told_apart() -> None:
    """Public curves of at most 200 points: real failures are found, healthy runs left alone."""
    shared = Path(os.environ.get("AXR_SHARED", ROOT.parent / "shared"))
    path = shared / "losscurves" / "curves.jsonl.gz"
    if not path.exists():
        pytest.skip(f"no loss curves at {path}")
    found = {"failure": 0, "healthy": 0}
    with gzip.open(path, "rt") as lines:
        curves = [json.loads(line) for line in lines]
    for curve in curves:
        if len(curve["loss"]) > 200 or curve["label"] == "transient":
            continue
        values = [NAN if value is None else value for value in curve["loss"]]
        alarm = feed(SpikeDetector(), values, grad_norm=None)
        found["healthy" if curve["label"] == "healthy" else "failure"] += alarm is not None
    assert found["failure"] >= 17
    assert found["healthy"] <= 1
