"""What other tools take for a loss spike, restated from their documented behaviour.

Each factory gives a fresh rule for one run: called with (step, loss, grad_norm) of each log entry,
it answers whether it would raise its alarm now. Not covered: what the tools do after that.
"""

import math
from collections import deque
from collections.abc import Callable
from statistics import fmean, median, stdev

from benchmarks.curves import Rule


def axolotl_watchdog(patience: int = 3) -> Rule:
    """loss_watchdog_threshold at twice the first loss, in `patience` entries in a row.

    NaN is not above the threshold, so it sets the count back.
    """
    threshold: float | None = None
    over = 0

    def rule(step: int, loss: float, grad_norm: float | None) -> bool:
        nonlocal threshold, over
        threshold = 2 * loss if threshold is None else threshold
        over = over + 1 if loss > threshold else 0
        return over >= patience

    return rule


def foundry_kill_loss_spike(
    window: int = 100, patience: int = 4, multiplier: float = 2.0, cap: float = 10.0
) -> Rule:
    """llm-foundry's KillLossSpike with its defaults, not log-only.

    More than `patience` entries in a row at `multiplier` times the mean of a full window, or,
    after two windows, half a window above `cap`.
    """
    losses: deque[float] = deque(maxlen=window)
    outliers = entries = 0

    def rule(step: int, loss: float, grad_norm: float | None) -> bool:
        nonlocal outliers, entries
        entries += 1
        alarm = False
        if len(losses) == window:
            outliers = outliers + 1 if loss >= multiplier * fmean(losses) else 0
            capped = entries > 2 * window and sum(x > cap for x in losses) >= window / 2
            alarm = outliers > patience or capped
        losses.append(loss)
        return alarm

    return rule


def olmo_six_sigma(window: int = 128, sigmas: float = 6.0) -> Rule:
    """The test by which OLMo-core's optimizers skip a step, taken as an alarm."""
    losses: deque[float] = deque(maxlen=window)

    def rule(step: int, loss: float, grad_norm: float | None) -> bool:
        known = [x for x in losses if math.isfinite(x)]
        alarm = False
        if len(losses) >= window // 2 and len(known) == len(losses):
            alarm = loss - fmean(losses) > sigmas * stdev(losses)
        losses.append(loss)
        return alarm

    return rule


def lightning_spike_detection(window: int = 10, warmup: int = 1, rtol: float = 2.0) -> Rule:
    """Lightning's SpikeDetection with its defaults: rising, and off the running mean by 200 %."""
    losses: deque[float] = deque(maxlen=window)

    def rule(step: int, loss: float, grad_norm: float | None) -> bool:
        alarm = False
        if len(losses) >= warmup:
            mean = fmean(losses)
            rising = loss > losses[-1]
            alarm = not math.isfinite(loss) or (rising and abs(loss - mean) >= abs(rtol * mean))
        losses.append(loss)
        return alarm

    return rule


def simple_baseline(window: int = 32, warmup: int = 10, limit: float = 14.0) -> Rule:
    """Winsorised CUSUM of log loss against median and MAD of accepted points."""
    accepted: deque[float] = deque(maxlen=window)
    evidence = 0.0
    broken = 0

    def rule(step: int, loss: float, grad_norm: float | None) -> bool:
        nonlocal evidence, broken
        broken = 0 if math.isfinite(loss) and loss > 0 else broken + 1
        if broken:
            return broken >= 3
        value = math.log(loss)
        if len(accepted) < warmup:
            accepted.append(value)
            return False
        level = median(accepted)
        spread = max(1.4826 * median(abs(x - level) for x in accepted), 0.08)
        score = (value - level) / spread
        evidence = max(0.0, evidence + min(max(score, -4.0), 5.0) - 1.2)
        if score < 3:
            accepted.append(value)
        return evidence > limit

    return rule


PEER_RULES: dict[str, Callable[[], Rule]] = {
    "axolotl watchdog": axolotl_watchdog,
    "llm-foundry KillLossSpike": foundry_kill_loss_spike,
    "OLMo-core 6 sigma": olmo_six_sigma,
    "Lightning SpikeDetection": lightning_spike_detection,
    "simple baseline": simple_baseline,
}
