"""Tell from a run's training log, one entry at a time, that the training has gone wrong for good."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Literal, NamedTuple

Kind = Literal["jump", "drift", "nonfinite", "collapse"]

_WINDOW = 32
_HISTORY = 2048


@dataclass(frozen=True)
class Alarm:
    """The verdict: training went wrong at `onset_step` and it was certain at `step`."""

    onset_step: int
    step: int
    kind: Kind
    reason: str


class _Entry(NamedTuple):
    step: int
    value: float | None
    accepted: bool
    evidence: float
    onset: int | None
    bad: int
    bad_onset: int | None
    zeros: int
    zero_onset: int | None
    over: int
    over_onset: int | None


_NOTHING = _Entry(-1, None, False, 0.0, None, 0, None, 0, None, 0, None)


class SpikeDetector:
    """Watch (step, loss, grad_norm) of one run and raise one Alarm."""

    def __init__(
        self,
        *,
        sensitivity: float = 1.0,
        patience: int = 4,
        warmup: int = 10,
        strict_grad_norm: bool = False,
        threshold: float | None = None,
        threshold_patience: int = 3,
    ) -> None:
        self.sensitivity = sensitivity
        self.patience = patience
        self.warmup = warmup
        self.strict_grad_norm = strict_grad_norm
        self.threshold = threshold
        self.threshold_patience = threshold_patience
        self._entries: list[_Entry] = []
        self._alarm: Alarm | None = None

    @property
    def alarm(self) -> Alarm | None:
        """The latched alarm, None while the run is fine."""
        return self._alarm

    @property
    def suspect_since(self) -> int | None:
        """The step from which on the run looks wrong, None when it is healthy."""
        if self._alarm:
            return self._alarm.onset_step
        last = self._entries[-1] if self._entries else _NOTHING
        onsets = [last.onset, last.bad_onset, last.zero_onset, last.over_onset]
        return min((step for step in onsets if step is not None), default=None)

    def update(self, step: int, loss: float | None, grad_norm: float | None) -> Alarm | None:
        """Take one log entry and return the alarm, if there is one by now."""
        if self._alarm:
            return self._alarm
        while self._entries and self._entries[-1].step > step:
            self._entries.pop()
        if self._entries and self._entries[-1].step == step:
            return None
        self._take(step, loss, grad_norm)
        if len(self._entries) > _HISTORY:
            self._entries = self._entries[: _HISTORY // 2 : 2] + self._entries[_HISTORY // 2 :]
        return self._alarm

    def reset(self) -> None:
        """Release the alarm and forget the entries from its onset on."""
        if self._alarm:
            onset = self._alarm.onset_step
            self._entries = [entry for entry in self._entries if entry.step < onset]
        self._alarm = None

    def state_dict(self) -> dict[str, Any]:
        """Everything learned so far, as JSON-able values."""
        return {
            "entries": [list(entry) for entry in self._entries],
            "alarm": asdict(self._alarm) if self._alarm else None,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self._entries = [_Entry(*entry) for entry in state["entries"]]
        self._alarm = Alarm(**state["alarm"]) if state["alarm"] else None

    def _take(self, step: int, loss: float | None, grad_norm: float | None) -> None:
        last = self._entries[-1] if self._entries else _NOTHING
        if loss is None and grad_norm is None:
            return
        bad_loss = loss is not None and not math.isfinite(loss)
        bad_norm = grad_norm is not None and not math.isfinite(grad_norm)
        new = last._replace(step=step, value=None, accepted=False)
        if bad_loss or bad_norm:
            new = new._replace(bad=last.bad + (2 if bad_loss else 1), bad_onset=last.bad_onset or step)
        else:
            new = new._replace(bad=0, bad_onset=None)
        if loss == 0.0:
            new = new._replace(zeros=last.zeros + (2 if bad_norm else 1), zero_onset=last.zero_onset or step)
        else:
            new = new._replace(zeros=0, zero_onset=None)
        if self.threshold is not None and loss is not None and loss > self.threshold:
            new = new._replace(over=last.over + 1, over_onset=last.over_onset or step)
        elif loss is not None:
            new = new._replace(over=0, over_onset=None)
        if loss is not None and not bad_loss and loss != 0.0:
            new = self._weigh(new, last, loss)
        self._entries.append(new)
        if new.zeros >= 3:
            self._raise(new.zero_onset, step, "collapse", f"loss exactly 0 in {new.zeros} entries")
        elif new.bad >= 4 or (self.strict_grad_norm and bad_norm):
            self._raise(new.bad_onset, step, "nonfinite", f"loss {loss}, grad_norm {grad_norm}")
        elif new.over and new.over >= self.threshold_patience:
            self._raise(new.over_onset, step, "jump", f"loss {loss} above threshold {self.threshold}")
        elif new.evidence > 14.0 / self.sensitivity:
            self._raise(new.onset, step, "jump", f"loss rose to {loss}")

    def _weigh(self, new: _Entry, last: _Entry, loss: float) -> _Entry:
        window = [e.value for e in self._entries[-3 * _WINDOW :] if e.accepted and e.value is not None]
        window = window[-_WINDOW:]
        if len(window) < self.warmup:
            return new._replace(value=loss, accepted=True)
        positive = min(window) > 0 and loss > 0
        values = [math.log(v) for v in window] if positive else window
        level = median(values)
        spread = 1.4826 * median(abs(v - level) for v in values)
        spread = max(spread, 0.08 if positive else 0.0, 1e-9)
        score = ((math.log(loss) if positive else loss) - level) / spread
        evidence = max(0.0, last.evidence + min(max(score, -4.0), 5.0) - 1.2)
        onset = None if evidence == 0.0 else (last.onset if last.onset is not None else new.step)
        return new._replace(value=loss, accepted=score < 3, evidence=evidence, onset=onset)

    def _raise(self, onset: int | None, step: int, kind: Kind, reason: str) -> None:
        self._alarm = Alarm(step if onset is None else onset, step, kind, reason)
