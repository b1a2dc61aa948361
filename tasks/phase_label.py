"""What the trainer is doing, left on the server for the sweep and the table of pods: labels of the
flow run that follows it.

`axr.phase`, and `axr.phase_at` (Unix seconds of its last sign of life), `axr.step`, the last one
that was done; `axr.planned_steps` and `axr.seconds_left` where they are known, else empty.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from blocks.logs import log
from pod.events import Event
from pod.pulse import Pulse, read_pulse
from pod.rundir import RunDir
from runner.progress import TrainingProgress
from tasks.api import API_AWAY, api, asking_once
from tasks.standing import PREFIX

EVERY = 15.0


@dataclass
class PhaseLabel:
    """Called at each turn of the follower; shows the events on, and writes a new sign of life at
    most every EVERY seconds. A busy server (SQLite is locked now and then) costs nothing: the next
    turn comes soon.
    """

    folder: RunDir
    flow_run_id: str
    show: Callable[[list[Event]], None]
    progress: TrainingProgress
    clock: Callable[[], float] = time.monotonic
    _written: Pulse | None = None
    _next: float = field(default=float("-inf"), init=False)

    def __call__(self, events: list[Event]) -> None:
        """Show the events, then leave the phase."""
        self.show(events)
        if self.clock() < self._next:
            return
        pulse = read_pulse(self.folder)
        if pulse is None or pulse == self._written:
            return
        self._next = self.clock() + EVERY
        left = self.progress.seconds_left
        words: dict[str, str | int] = {
            "phase": self.progress.phase(pulse.phase, pulse.step),
            "phase_at": round(pulse.t),
            "step": pulse.step,
            "planned_steps": self.progress.planned or "",
            "seconds_left": "" if left is None else round(left),
        }
        labels: dict[str, str | int | float | bool] = {PREFIX + k: v for k, v in words.items()}
        try:
            # Asked once: the follower must not wait for a server, and the next turn comes soon.
            with asking_once():
                api().update_flow_run_labels(UUID(self.flow_run_id), labels)
            self._written = pulse
        except API_AWAY as away:
            log().debug("The trainer's phase can't be shown now: %s", away)
