"""How far a loss lies over where this run's losses have lain, and for how long.

Four tallies, each of which heals by itself:
jump      winsorised CUSUM of the loss over its recent level (median of accepted entries), in
          units of its own scatter; entries that look bad neither move the level nor, by more
          than twice the scatter, widen it
drift     the same over the best level the run has had, for a rise too slow for the first
startup   log excess over the first entries, while the level is young: early bumps of three
          times the loss heal in healthy runs, ten times for dozens of entries do not
top       entries in a row over everything the run has had since its start: while a loss falls
          steeply its level lags and its scatter is wide, so that `jump` sees too little

Losses are compared by ratio while they are positive and by difference once one is negative, or
when the run began at almost 0 (RL), where a ratio means nothing.

The constants are round numbers found on 182 public loss curves (benchmarks/detector.py) and on
synthetic noise. Moving any one of them by a quarter, on either half of the repositories behind the
curves, makes at most one of 139 healthy runs raise an alarm.
"""

import math
from collections import deque
from collections.abc import Collection, Iterable
from typing import NamedTuple

LIMIT = 11.0  # evidence that makes an alarm, in units of scatter
LEVEL_ENTRIES = 15  # accepted entries whose median is the level
# A young loss falls steeply: its level is at most SLACK times the median of its newest entries.
FALLING_ENTRIES, FALLING_SLACK = 5, 1.1
SCATTER_ENTRIES = 56  # entries whose distance from the level gives the scatter
SCATTER_FLOOR = 0.06  # median point-to-point noise of healthy curves is 5.5 %
SMALLEST_JUMP = 0.10  # log units; lesser rises are no evidence
SMALLEST_DRIFT = 0.25
JUMP_ALLOWANCE = 0.6  # CUSUM's slack, in units of scatter
DRIFT_ALLOWANCE = 3.0
HEALING = 4.0  # most evidence that one good entry takes away
FORGET_BEST = 0.0005  # the best level rises by this share an entry: 5 % in 100 entries
CALM, SUSPECT = 2.0, 1.2  # highest score that may move the level, without and with evidence
TOP_RISE = math.log(1.1)  # no healthy or healing curve has 4 entries in a row so far over its top
STARTUP_RISE = math.log(2.0)
STARTUP_LIMIT = 20.0  # start-ups that heal reach 15
SOFTENING = 0.005  # below this loss ratios mean little: logs round to 4 digits
NEAR_ZERO = 0.02  # a run that began lower is compared by difference
SIGNED_UNIT = 0.1  # smallest typical size of losses compared by difference


class Tally(NamedTuple):
    """Evidence of one kind: how much, since which step, over how many entries."""

    amount: float = 0.0
    since: int | None = None
    entries: int = 0

    def add(self, gain: float, step: int) -> "Tally":
        """The tally after one more entry; at 0 it is over, and begins anew from there."""
        amount = self.amount + gain
        if amount <= 0:
            return Tally()
        return Tally(amount, step if self.since is None else self.since, self.entries + 1)

    def in_a_row(self, hit: bool, step: int) -> "Tally":
        """The tally of hits without a break."""
        return self.add(1.0, step) if hit else Tally()


class Entry(NamedTuple):
    """One log entry, and all that was known after it beyond the windows."""

    step: int
    loss: float | None = None  # None: missing or broken
    grad_norm: float | None = None
    level: float = 0.0
    start: float = 0.0  # the level's typical size while it was young
    accepted: int = 0  # entries that have moved the level
    moves_level: bool = False
    log_residual: float | None = None  # distances from the level, outliers cut
    residual: float | None = None
    surge_age: int = 1000  # entries since grad_norm last surged
    best: float | None = None
    best_scatter: float = SCATTER_FLOOR
    longest_gap: int = 0  # entries without a loss in a row, among healed gaps
    jump: Tally = Tally()
    drift: Tally = Tally()
    startup: Tally = Tally()
    bad_loss: Tally = Tally()
    bad_norm: Tally = Tally()
    zero: Tally = Tally()
    missing: Tally = Tally()
    over: Tally = Tally()
    highest: float = 0.0  # among accepted losses
    top: Tally = Tally()


class Windows:
    """The recent entries' numbers that level, scatter and usual grad_norm are taken from."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.losses: deque[float] = deque(maxlen=SCATTER_ENTRIES)
        self.log_residuals: deque[float] = deque(maxlen=SCATTER_ENTRIES)
        self.residuals: deque[float] = deque(maxlen=SCATTER_ENTRIES)
        self.grad_norms: deque[float] = deque(maxlen=32)
        for entry in entries:
            self.note(entry)

    def note(self, entry: Entry) -> None:
        """Take in the newest entry."""
        if entry.moves_level and entry.loss is not None:
            self.losses.append(entry.loss)
        if entry.log_residual is not None and entry.residual is not None:
            self.log_residuals.append(entry.log_residual)
            self.residuals.append(entry.residual)
        if entry.grad_norm is not None:
            self.grad_norms.append(entry.grad_norm)


def weigh(entry: Entry, windows: Windows, *, loss: float, warmup: int, clip: float) -> Entry:
    """The entry after its loss was compared with the level and the best level.

    Args:
        warmup: accepted entries before which the level is young.
        clip: most evidence that one entry may add.
    """
    losses = list(windows.losses)
    if entry.accepted < warmup:
        return _learn(entry, losses, loss)
    level = middle(losses[-LEVEL_ENTRIES:])
    if entry.accepted < SCATTER_ENTRIES:
        # A young run falls steeply, and its level lags behind: the newest entries tell better.
        level = min(level, FALLING_SLACK * middle(losses[-FALLING_ENTRIES:]))
    ratio = log_ratio(loss, level)
    signed = by_difference(entry, losses) or loss < 0
    if signed:
        unit = max(middle([abs(value) for value in losses]), SIGNED_UNIT)
        scatter = max(spread(windows.residuals), SCATTER_FLOOR * unit)
    else:
        unit = 1.0
        scatter = max(spread(windows.log_residuals), SCATTER_FLOOR)
    score = (loss - level if signed else ratio) / scatter
    gain = score - SMALLEST_JUMP * unit / scatter - JUMP_ALLOWANCE
    jump = entry.jump.add(max(-HEALING, min(clip, gain)), entry.step)
    moves = score < (CALM if jump.since is None else SUSPECT)
    share = min(1.0, (CALM if score > 0 else HEALING) / max(abs(score), CALM))
    entry = entry._replace(
        level=level,
        accepted=entry.accepted + moves,
        moves_level=moves,
        log_residual=ratio * share,
        residual=(loss - level) * share,
        jump=jump,
        top=entry.top.in_a_row(
            not signed and log_ratio(loss, entry.highest) > TOP_RISE, entry.step
        ),
        highest=max(entry.highest, loss) if moves else entry.highest,
    )
    return entry._replace(drift=Tally()) if signed else _drift(entry, loss, scatter, clip)


def by_difference(entry: Entry, losses: Collection[float]) -> bool:
    """Whether this run's losses lie around 0, so that ratios mean nothing."""
    return entry.start < NEAR_ZERO or min(losses) < 0


def log_ratio(loss: float, level: float) -> float:
    """By how much the loss is over the level, in log units; 0.0 where both are tiny."""
    return math.log((max(loss, 0.0) + SOFTENING) / (max(level, 0.0) + SOFTENING))


def middle(values: Iterable[float]) -> float:
    """The median (statistics.median takes three times as long)."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def spread(residuals: Collection[float]) -> float:
    """A standard deviation that outliers and a falling trend leave alone.

    The larger of the estimates by the median absolute deviation and by the upper tail.
    """
    if not residuals:
        return 0.0
    ordered = sorted(residuals)
    half = len(ordered) // 2
    deviations = sorted([abs(value - ordered[half]) for value in ordered])
    tail = ordered[int(0.9 * (len(ordered) - 1))]
    return max(1.4826 * deviations[half], tail / 1.2816)


def _learn(entry: Entry, losses: list[float], loss: float) -> Entry:
    """While the level is young: take the loss for normal unless it is twice the first ones."""
    level = middle(losses[-LEVEL_ENTRIES:]) if losses else loss
    rise = log_ratio(loss, level)
    if len(losses) >= 3 and min(losses) > NEAR_ZERO and rise > STARTUP_RISE:
        excess = min(rise, 2.5) - STARTUP_RISE
        return entry._replace(startup=entry.startup.add(excess, entry.step))
    return entry._replace(
        level=level,
        start=middle([abs(value) for value in [*losses, loss]]),
        accepted=entry.accepted + 1,
        moves_level=True,
        highest=max(entry.highest, loss),
        # Start-up bumps heal: they shall not widen the scatter for long.
        log_residual=max(-1.0, min(0.3, rise)) if losses else None,
        residual=min(loss - level, 0.3 * abs(level)) if losses else None,
    )


def _drift(entry: Entry, loss: float, scatter: float, clip: float) -> Entry:
    best = entry.level if entry.best is None else entry.best * (1 + FORGET_BEST)
    if entry.level <= best:
        best = entry.level
        entry = entry._replace(best_scatter=scatter)
    unit = max(entry.best_scatter, scatter / 2)
    allowed = max(SMALLEST_DRIFT, DRIFT_ALLOWANCE * unit)
    gain = min(clip, (log_ratio(loss, best) - allowed) / unit)
    return entry._replace(best=best, drift=entry.drift.add(gain, entry.step))
