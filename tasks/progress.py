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
from pod.pulse import Pulse
from runner.progress import TrainingProgress
from runner.secrets import scrub
from tasks.surroundings import Surroundings

EVERY = 2.0


def key(run: str) -> str:
    """The artifact's key."""
    return f"progress-{run}"


@dataclass
class Progress:
    """Shows an attempt's events, throttled; `pulse` and `around` tell of the trainer's phase, the
    GPUs and the money.
    """

    run: str
    attempt: int
    pulse: Callable[[], Pulse | None] = lambda: None
    around: Surroundings = field(default_factory=Surroundings)
    clock: Callable[[], float] = time.monotonic
    _artifact: UUID | None = None
    _shown: tuple[float, str] = (float("-inf"), "")

    def __post_init__(self) -> None:
        self.known = TrainingProgress(self.attempt)

    def __call__(self, events: list[Event]) -> None:
        """Take new events in and show them when it is time to."""
        for event in events:
            self.known.take(event)
            if event["kind"] == "alarm":
                log().error("Alarm at step %s: %s", event["step"], event["reason"])
        ended = any(event["kind"] in ("alarm", "end", "error") for event in events)
        if not ended and self.clock() - self._shown[0] < EVERY:
            return
        text = self._line()
        if text != self._shown[1]:
            self._show(text)

    def _line(self) -> str:
        pulse = self.pulse()
        return self.known.line(
            self.known.phase(pulse.phase, pulse.step) if pulse else None,
            to_step=pulse.step if pulse else 0,
            gpu_percent=self.around.gpu_percent,
            spent=self.around.spent(),
        )

    def _show(self, text: str) -> None:
        """Show the text; a server that is away costs a line on a screen, never the follower."""
        self._shown = (self.clock(), text)
        try:
            self._write(text)
        except httpx.HTTPError as away:
            log().warning("The progress can't be shown now: %s", away)

    def _write(self, text: str) -> None:
        done, text = self.known.done, scrub(text)
        if self._artifact is None:
            made = create_progress_artifact(done, key=key(self.run), description=text)
            self._artifact = cast(UUID, made)  # a coroutine only where an event loop runs
        else:
            update_progress_artifact(self._artifact, done, description=text)
