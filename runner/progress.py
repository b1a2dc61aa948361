"""Where an attempt stands, from its events: step, loss, pace, time left; what is unknown is left
out, never zero.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.notice import dollars

PACE_OF = 50  # steps that the time left is reckoned from
FORWARDING = "forwarding"
WORDS = {"evaluating": "evaluating", "saving": "saving"}


@dataclass
class TrainingProgress:
    """Takes the events of one attempt in; times are Unix seconds."""

    attempt: int
    planned: int | None = None
    step: int | None = None
    loss: float | str | None = None
    eval_loss: float | str | None = None
    learning_rate: float | None = None
    tokens_per_second: float | None = None
    last_word: str = ""
    armed: bool = False
    _steps: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=PACE_OF))

    def take(self, event: Mapping[str, Any]) -> None:
        """Take one event in."""
        match event["kind"]:
            case "armed":
                self.armed = True
                self.planned = event.get("planned_steps")
            case "step":
                self.step = event["step"]
                self._steps.append((event["t"], event["step"]))
                self.loss, self.learning_rate = event.get("loss"), event.get("lr")
                self.tokens_per_second = event.get("tokens_per_second")
            case "eval":
                self.eval_loss = event.get("eval_loss", self.eval_loss)
            case "alarm":
                self.step = event["step"]
                self.last_word = f"ALARM {event['reason']}"
            case "end":
                self.step = event["step"]
                self.last_word = "training ended"

    @property
    def done(self) -> float:
        """Percent of the planned steps."""
        return min(100.0, 100 * (self.step or 0) / self.planned) if self.planned else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Until the planned last step, at the pace of the last ones; None while it is unknown."""
        if not self.planned or len(self._steps) < 2 or self.last_word:
            return None
        (first_t, first), (last_t, last) = self._steps[0], self._steps[-1]
        if last <= first or last_t < first_t:
            return None
        return max(0.0, (self.planned - last) * (last_t - first_t) / (last - first))

    def phase(self, pulse_phase: str, pulse_step: int) -> str:
        """The trainer's phase: loading at a step means that a resumed one, ready to train, passes
        over the rows that it has seen before.
        """
        loaded = pulse_phase == "loading" and self.armed and pulse_step > 0
        return FORWARDING if loaded else pulse_phase

    def line(
        self,
        phase: str | None = None,
        *,
        to_step: int = 0,
        gpu_percent: float | None = None,
        spent: float | None = None,
    ) -> str:
        """`attempt 1 · step 12/40 · loss 3.4102 · lr 0.0002 · 1,234 tokens/s · 0:21 left`."""
        parts = [f"attempt {self.attempt}", self._doing(phase, to_step)]
        if self.step is not None:
            parts.append(f"step {self.step}" + (f"/{self.planned}" if self.planned else ""))
        if self.last_word:
            return " · ".join(part for part in [*parts, self.last_word] if part)
        known = {
            "loss {}": _number(self.loss),
            "eval loss {}": _number(self.eval_loss),
            "lr {}": _short(self.learning_rate),
            "{} tokens/s": _whole(self.tokens_per_second),
            "GPU {} %": _whole(gpu_percent),
            "{}": None if spent is None else dollars(spent),
            "{} left": None if self.seconds_left is None else duration(self.seconds_left),
        }
        parts += [form.format(value) for form, value in known.items() if value is not None]
        return " · ".join(part for part in parts if part)

    def _doing(self, phase: str | None, to_step: int) -> str:
        """The phase where it is not plain training."""
        if phase == FORWARDING:
            return f"fast-forwarding data to step {to_step}"
        if self.step is None and not self.last_word:
            return "loading the model"
        return WORDS.get(phase or "", "") if not self.last_word else ""


def duration(seconds: float) -> str:
    """`0:21`, `1:02:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _number(value: object) -> str | None:
    if value is None:
        return None
    return f"{value:.4f}" if isinstance(value, int | float) else str(value)


def _short(value: float | None) -> str | None:
    return None if value is None else f"{value:.3g}"


def _whole(value: float | None) -> str | None:
    return None if value is None else f"{value:,.0f}"
