"""What a watcher sees of the training: one progress artifact for each run, written at most every
few seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast
from uuid import UUID

import httpx
from prefect.artifacts import create_progress_artifact, update_progress_artifact

from blocks.logs import log
from pod.events import Event
from runner.secrets import scrub

EVERY = 2.0


def key(run: str) -> str:
    """The artifact's key."""
    return f"progress-{run}"


@dataclass
class Progress:
    """Shows an attempt's events, throttled: `attempt 1 · step 12/40 · loss 3.4102 · 0:21 left`."""

    run: str
    attempt: int
    clock: Callable[[], float] = time.monotonic
    text: str = "loading the model"
    done: float = 0.0
    _planned: int | None = None
    _steps: list[tuple[float, int]] = field(default_factory=list)
    _artifact: UUID | None = None
    _shown: tuple[float, str] = (float("-inf"), "")

    def __call__(self, events: list[Event]) -> None:
        """Take new events in and show them when it is time to."""
        for event in events:
            self._take(event)
        text = f"attempt {self.attempt} · {self.text}"
        ended = any(event["kind"] in ("alarm", "end", "error") for event in events)
        if text != self._shown[1] and (ended or self.clock() - self._shown[0] >= EVERY):
            self._show(text)

    def _take(self, event: Event) -> None:
        match event["kind"]:
            case "armed":
                self._planned = event.get("planned_steps")
            case "step":
                self._steps = [*self._steps[-50:], (event["t"], event["step"])]
                self.text = self._line(event)
                self.done = 100 * event["step"] / self._planned if self._planned else 0.0
            case "eval":
                self.text = (
                    f"step {event['step']} · evaluated, loss {_number(event.get('eval_loss'))}"
                )
            case "alarm":
                self.text = f"step {event['step']} · ALARM {event['reason']}"
                log().error("Alarm at step %s: %s", event["step"], event["reason"])
            case "end":
                self.text = f"step {event['step']} · training ended"

    def _line(self, event: Event) -> str:
        planned = self._planned or "?"
        line = f"step {event['step']}/{planned} · loss {_number(event.get('loss'))}"
        (first_t, first), (last_t, last) = self._steps[0], self._steps[-1]
        if self._planned and last > first:
            left = (self._planned - last) * (last_t - first_t) / (last - first)
            line += f" · {_duration(left)} left"
        return line

    def _show(self, text: str) -> None:
        """Show the text; a server that is away costs a line on a screen, never the follower."""
        self._shown = (self.clock(), text)
        try:
            self._write(text)
        except httpx.HTTPError as away:
            log().warning("The progress can't be shown now: %s", away)

    def _write(self, text: str) -> None:
        done, text = min(100.0, self.done), scrub(text)
        if self._artifact is None:
            made = create_progress_artifact(done, key=key(self.run), description=text)
            self._artifact = cast(UUID, made)  # a coroutine only where an event loop runs
        else:
            update_progress_artifact(self._artifact, done, description=text)


def _number(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, int | float) else str(value)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
