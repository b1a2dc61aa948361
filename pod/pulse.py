"""A trainer's sign of life: which step, which phase, when; in pulse.json of the run's folder.

    {t, step, phase}    t: Unix seconds of the last sign; step: steps done, 0 before the first

Phases: `loading` (everything before the first step of a pass is done: model, data, compilation,
batches that a resumed run passes over), `training`, `evaluating`, `saving` (a checkpoint, and from
the last step on the final model). What follows a phase counts as part of it until the next step.

Only rank 0 writes, through a thread of its own: a step costs two assignments and waits for no disk.
The file is at most a second old, so it holds the very last step when the trainer stands still.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import Any, Literal, NamedTuple, TypeVar, cast, get_args

from pod.rundir import RunDir, read_json, write_json

Phase = Literal["loading", "training", "evaluating", "saving"]
PHASES: tuple[Phase, ...] = get_args(Phase)
WRITE_EVERY = 1.0  # seconds; a change of phase is written at once

F = TypeVar("F", bound=Callable[..., Any])


class Pulse(NamedTuple):
    """The last sign of life: `t` in Unix seconds, `step` is the last one that was done."""

    t: float
    step: int
    phase: Phase


def read_pulse(folder: RunDir) -> Pulse | None:
    """Return the newest pulse, None before there is one."""
    try:
        noted = read_json(folder.pulse)
    except ValueError:  # a disk that is full or broken: no sign is what it is
        return None
    if noted is None or noted.get("phase") not in PHASES:
        return None
    return Pulse(float(noted["t"]), int(noted["step"]), noted["phase"])


class Heart:
    """Beats in the trainer: `enter` a phase, `beat` in it; with `writes` False it does nothing."""

    def __init__(
        self, folder: RunDir, *, writes: bool = True, clock: Callable[[], float] = time.time
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._now: Pulse | None = None
        self._written: Pulse | None = None
        self._changed = threading.Event()
        self._writing = threading.Lock()
        self._thread: threading.Thread | None = None
        self.writes = writes

    def enter(self, phase: Phase, step: int | None = None) -> None:
        """A phase begins; `step` where it is known to have changed."""
        before = self._now
        self._now = Pulse(self._clock(), step if step is not None else _step(before), phase)
        if before is None or before.phase != phase:
            self._wake()

    def beat(self, step: int | None = None) -> None:
        """Something was done in the phase that it is in."""
        before = self._now
        if before is not None:
            self._now = Pulse(self._clock(), before.step if step is None else step, before.phase)

    def during(self, phase: Phase, work: F) -> F:
        """Wrap a function: the phase begins with it and lasts until another one begins."""

        @wraps(work)
        def entering(*args: Any, **kwargs: Any) -> Any:
            self.enter(phase)
            return work(*args, **kwargs)

        return cast(F, entering)

    def write(self) -> None:
        """Write the newest sign of life, unless it is written already."""
        with self._writing:
            now = self._now
            if self.writes and now is not None and now != self._written:
                write_json(self._folder.pulse, now._asdict())
                self._written = now

    def _wake(self) -> None:
        if not self.writes:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._keep_writing, name="pulse", daemon=True)
            self._thread.start()
        self._changed.set()

    def _keep_writing(self) -> None:
        while True:
            self._changed.wait(WRITE_EVERY)
            self._changed.clear()
            try:
                self.write()
            except OSError as error:  # a full disk ends the run elsewhere, with its reason
                print(f"the pulse can't be written: {error}", flush=True)


def _step(pulse: Pulse | None) -> int:
    return 0 if pulse is None else pulse.step
