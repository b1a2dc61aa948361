"""Tell from a run's training log, one entry at a time, that the training has gone wrong for good.

An alarm needs evidence that lasts (see pod/evidence.py): a single bad batch heals, a jump that
stays, a slow rise, a loss or gradient that is no number, or a loss of exactly 0 (what the Trainer
writes for NaN) does not. What each entry changed is kept with it, so going back some steps
restores the state exactly.

Not covered: a rise of less than about a fifth, a slow one within the run's own scatter, and a
start-up that blows up by less than five times and never comes back.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pod.evidence import (
    LEVEL_ENTRIES,
    LIMIT,
    SCATTER_FLOOR,
    SOFTENING,
    STARTUP_LIMIT,
    Entry,
    Tally,
    Windows,
    by_difference,
    log_ratio,
    middle,
    spread,
    weigh,
)

Kind = Literal["jump", "drift", "nonfinite", "collapse"]

# Healthy runs reach 12 times for single entries, so this only lowers the limit for the loss.
SURGE = 5.0  # grad_norm over its median
SURGE_RELIEF = 0.85  # share of LIMIT that is enough after a surge
HUGE = 1e30  # as good as infinite, and small enough to reckon with
HISTORY = 1024  # entries kept


@dataclass(frozen=True)
class Alarm:
    """Training went wrong at `onset_step`; that was certain at `step`, for `reason`."""

    onset_step: int
    step: int
    kind: Kind
    reason: str


class SpikeDetector:
    """Watch one run's log entries and raise one Alarm, latched until `reset`.

    Args:
        sensitivity: above 1 takes less evidence for an alarm, below 1 more.
        patience: entries a jump must last; a shorter blip heals.
        warmup: entries to learn the level from (5 at least); broken numbers count at once.
        strict_grad_norm: a single non-finite grad_norm is an alarm; for logs of one's own
            optimizer steps, where it leaves no finite parameter behind.
        threshold: a loss above it in `threshold_patience` entries in a row is an alarm too,
            counted over distinct entries, not over steps.
    """

    def __init__(
        self,
        *,
        sensitivity: float = 1.0,
        patience: int = 4,
        warmup: int = 8,
        strict_grad_norm: bool = False,
        threshold: float | None = None,
        threshold_patience: int = 3,
    ) -> None:
        if sensitivity <= 0:
            raise ValueError(f"sensitivity must be above 0, not {sensitivity}")
        self._limit = LIMIT / sensitivity
        self._startup_limit = STARTUP_LIMIT / sensitivity
        self._patience = max(1, patience)
        # patience - 1 entries, however high, stay just below the limit.
        self._clip = self._limit / (self._patience - 0.85)
        self._warmup = max(warmup, 5)
        self._strict_grad_norm = strict_grad_norm
        self._threshold = threshold
        self._threshold_patience = max(1, threshold_patience)
        self._alarm: Alarm | None = None
        self._entries: list[Entry] = []
        self._windows = Windows()

    @property
    def alarm(self) -> Alarm | None:
        """The latched alarm, None while there is none."""
        return self._alarm

    @property
    def suspect_since(self) -> int | None:
        """The step from which on the run may be going wrong, None while it is healthy."""
        if self._alarm:
            return self._alarm.onset_step
        if not self._entries:
            return None
        last = self._entries[-1]
        tallies = [last.bad_loss, last.bad_norm, last.zero, last.missing, last.over, last.startup]
        tallies.append(last.top)
        # Noise holds some evidence much of the time; one full outlier is nearly a third.
        tallies += [t for t in (last.jump, last.drift) if t.amount > self._limit / 4]
        return min((t.since for t in tallies if t.since is not None), default=None)

    def update(self, step: int, loss: float | None, grad_norm: float | None) -> Alarm | None:
        """Take one training log entry; return the alarm if there is one by now.

        A repeated step is ignored, a smaller one drops what came after it. Entries without a loss
        (evaluations) are better not given: three in a row, in a run that logged one each time,
        pass for NaN, which JSON writes as null.
        """
        if self._alarm:
            return self._alarm
        if self._entries and step == self._entries[-1].step:
            return None
        if self._entries and step < self._entries[-1].step:
            self._forget_from(step)
        last = self._entries[-1] if self._entries else Entry(step)
        entry = self._count_broken(last, step, loss, grad_norm)
        if entry.loss is not None:
            entry = weigh(
                entry, self._windows, loss=entry.loss, warmup=self._warmup, clip=self._clip
            )
        self._remember(entry)
        self._alarm = self._broken(entry, loss, grad_norm) or self._risen(entry)
        return self._alarm

    def reset(self) -> None:
        """Release the alarm and forget the entries from its onset on."""
        if self._alarm:
            self._forget_from(self._alarm.onset_step)
            self._alarm = None

    def state_dict(self) -> dict[str, Any]:
        """What was learned so far, as JSON-able values (settings are not part of it)."""
        return {
            "entries": [list(entry) for entry in self._entries],
            "alarm": asdict(self._alarm) if self._alarm else None,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self._entries = [_entry(values) for values in state["entries"]]
        self._alarm = Alarm(**state["alarm"]) if state["alarm"] else None
        self._windows = Windows(self._entries)

    def _remember(self, entry: Entry) -> None:
        self._entries.append(entry)
        if len(self._entries) > HISTORY:
            # Thin the older half: a far rewind still finds an entry near its step.
            half = HISTORY // 2
            self._entries[:half] = self._entries[:half:2]
        self._windows.note(entry)

    def _forget_from(self, step: int) -> None:
        while self._entries and self._entries[-1].step >= step:
            self._entries.pop()
        self._windows = Windows(self._entries)

    # ---------------------------------------------------------------- numbers that are broken

    def _count_broken(
        self, last: Entry, step: int, loss: float | None, grad_norm: float | None
    ) -> Entry:
        """The entry for this step, with the tallies of broken numbers moved on."""
        usable = _finite(loss)
        norm = _finite(grad_norm)
        zero = loss == 0.0 and self._zero_is_odd(last, grad_norm)
        over = last.over
        if self._threshold is not None and usable is not None:
            over = over.in_a_row(usable > self._threshold, step)
        return last._replace(
            step=step,
            loss=None if zero else usable,
            grad_norm=norm,
            moves_level=False,
            log_residual=None,
            residual=None,
            surge_age=0 if self._surges(grad_norm) else min(last.surge_age + 1, HISTORY),
            longest_gap=max(last.longest_gap, 0 if loss is None else last.missing.entries),
            bad_loss=last.bad_loss.in_a_row(loss is not None and usable is None, step),
            bad_norm=last.bad_norm.in_a_row(grad_norm is not None and norm is None, step),
            zero=last.zero.in_a_row(zero, step),
            missing=last.missing.in_a_row(loss is None, step),
            over=over,
        )

    def _zero_is_odd(self, last: Entry, grad_norm: float | None) -> bool:
        """Whether a loss of exactly 0 may be something else than what this run computed."""
        computed = grad_norm is not None and math.isfinite(grad_norm) and grad_norm != 0.0
        losses = self._windows.losses
        return not computed or bool(losses and not by_difference(last, losses))

    def _zeros_needed(self, entry: Entry) -> int:
        """Entries of exactly 0 in a row that prove a collapse."""
        losses = self._windows.losses
        if entry.bad_norm.entries:
            return 1
        if not losses:
            return self._patience + 1
        if by_difference(entry, losses) or entry.level < SOFTENING:
            return 5 * self._patience  # losses around 0, or so small that logs round them to 0
        return max(2, self._patience - 1)

    def _surges(self, grad_norm: float | None) -> bool:
        norms = self._windows.grad_norms
        if grad_norm is None or len(norms) < self._warmup:
            return False
        return not grad_norm <= SURGE * middle(norms)  # so that NaN is a surge too

    def _broken(self, entry: Entry, loss: float | None, grad_norm: float | None) -> Alarm | None:
        sure = 1 if entry.bad_norm.entries or self._strict_grad_norm else 2
        gap = 2 * entry.longest_gap + 2 if entry.longest_gap else 3
        kind: Kind = "nonfinite"
        if entry.zero.entries >= self._zeros_needed(entry):
            kind, tallies = "collapse", [entry.zero, entry.bad_norm]
        elif (
            entry.bad_loss.entries >= sure
            or entry.bad_norm.entries >= (1 if self._strict_grad_norm else self._patience)
            or (entry.missing.entries >= gap and self._windows.losses)
        ):
            tallies = [entry.bad_loss, entry.bad_norm, entry.missing]
        elif entry.over.entries >= self._threshold_patience:
            kind, tallies = "jump", [entry.over]
        else:
            return None
        onset = min((t.since for t in tallies if t.since is not None), default=entry.step)
        count = max(tally.entries for tally in tallies)
        said = f"loss {_show(loss)}, grad_norm {_show(grad_norm)}"
        if kind == "jump":
            said = f"loss {_show(loss)} above the threshold {_show(self._threshold)}"
        return Alarm(onset, entry.step, kind, f"{said}: {_entries(count)} since step {onset}")

    # ---------------------------------------------------------------- losses that have risen

    def _risen(self, entry: Entry) -> Alarm | None:
        relieved = entry.surge_age <= entry.jump.entries + 3
        limit = self._limit * (SURGE_RELIEF if relieved else 1.0)
        before = self._entries[-2] if len(self._entries) > 1 else Entry(entry.step)
        # Only a bad entry raises the alarm, never one on the way down.
        if entry.jump.amount > max(limit, before.jump.amount):
            tally = entry.jump
        elif entry.drift.amount > max(self._limit, before.drift.amount):
            tally = entry.drift
        elif entry.startup.amount > self._startup_limit:
            tally = entry.startup
        elif entry.top.entries >= self._patience:
            tally = entry.top
        else:
            return None
        if tally.entries < self._patience:
            return None
        first = next(i for i, e in enumerate(self._entries) if e.step == tally.since)
        level = entry.best if tally is entry.drift else self._entries[first].level
        return self._alarm_over(0.0 if level is None else level, first)

    def _alarm_over(self, level: float, first: int) -> Alarm:
        entry = self._entries[-1]
        onset, kind = self._onset(first, level)
        step = self._entries[onset].step
        reason = (
            f"loss {_show(entry.loss)} over a level of {_show(level)} with scatter "
            f"{spread(self._windows.log_residuals):.0%}: "
            f"{_entries(len(self._entries) - onset)} since step {step}"
        )
        usual = middle(self._windows.grad_norms) if self._windows.grad_norms else 0.0
        highest = max((e.grad_norm or 0.0 for e in self._entries[onset:]), default=0.0)
        if usual and highest > SURGE * usual:
            reason += f", grad_norm up to {highest / usual:.0f} times its median"
        return Alarm(step, entry.step, kind, reason)

    def _onset(self, first: int, level: float) -> tuple[int, Kind]:
        """Index of the entry with which the rise began, and whether it was a jump or a drift.

        The losses are split into normal and risen ones. Where those just before the split have
        risen by a quarter already, all began when they first lay over the level: as a drift, or
        as a jump that was followed by a larger one.
        """

        def risen(loss: float) -> float:
            return log_ratio(loss, level) if level > 0 else loss - level

        rises = [
            (i, risen(e.loss))
            for i, e in enumerate(self._entries)
            if i >= first - 3 and e.loss is not None
        ]
        height = middle([rise for _, rise in rises[-self._patience :]])
        total, most, split = 0.0, -math.inf, first
        for i, rise in reversed([pair for pair in rises if pair[0] >= first]):
            total += min(rise, 2 * height) - height / 2
            if total >= most:
                most, split = total, i
        lead = [rise for i, rise in rises if i < split][-3:]
        if lead and sum(lead) / len(lead) > height / 4:
            began = self._before(split, level)
            loss = self._entries[began].loss
            if loss is None or risen(loss) < height / 4:
                return began, "drift"
            split = began  # it rose at once, and again later
        while split > 0 and self._entries[split - 1].surge_age == 0:
            split -= 1  # the gradient goes 1 to 3 entries before the loss
        return split, "jump"

    def _before(self, index: int, level: float) -> int:
        """The index from which on, without a break, losses were over the level at all."""
        margin = abs(level) * SCATTER_FLOOR / 2
        for _ in range(min(index, LEVEL_ENTRIES)):
            loss = self._entries[index - 1].loss
            if loss is None or loss - level <= margin:
                break
            index -= 1
        return index


def _finite(value: float | None) -> float | None:
    return value if value is not None and abs(value) < HUGE else None


def _show(value: float | None) -> str:
    return "missing" if value is None else f"{value:.4g}"


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"


def _entry(values: Sequence[Any]) -> Entry:
    """An entry from its JSON, where tallies have become lists."""
    fields: list[Any] = [Tally(*value) if isinstance(value, list) else value for value in values]
    return Entry(*fields)
