"""The commands that reach a trainer through control.json; no torch in here."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pod.rundir import read_json

LOOK_EVERY = 0.25  # seconds between two looks at control.json: a stat on a network disk takes 1 ms


class Commands:
    """Gives out each command once. It outlives an attempt: an old command never comes again."""

    def __init__(self, control: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._control = control
        self._clock = clock
        self._looked_at = -math.inf
        self._changed_at = 0
        self._taken = 0

    def take(self, *, at_once: bool = False) -> dict[str, Any] | None:
        """Return the new command ({seq, cmd, …}), None if there is none.

        Looks every LOOK_EVERY seconds, or `at_once`; the file is read only when it has changed.
        """
        now = self._clock()
        if not at_once and now - self._looked_at < LOOK_EVERY:
            return None
        self._looked_at = now
        try:
            changed_at = os.stat(self._control).st_mtime_ns
        except FileNotFoundError:
            return None
        if changed_at == self._changed_at:
            return None
        self._changed_at = changed_at
        command = read_json(self._control)
        if command is None or command["seq"] <= self._taken:
            return None
        self._taken = command["seq"]
        return command
