"""What is known of the pod around its trainer: how busy the GPUs are, what the run has cost so far.

Looked up by a thread of its own, because a driver or a network that hangs must not hold up the
follower; what could not be looked up is unknown.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from pod.gpus import gpu_use
from pod.lease import read_labels
from tasks.lease import spent_at

EVERY = 15.0
MONEY_EVERY = 4  # looks


class Surroundings:
    """`gpu_percent` 0–100, the mean over the pod's GPUs; None is unknown."""

    gpu_percent: float | None = None

    def __init__(
        self,
        environment: Mapping[str, str] = os.environ,
        *,
        gpus: Callable[[Mapping[str, str]], float | None] = gpu_use,
        labels: Callable[[Mapping[str, str]], dict[str, Any] | None] = read_labels,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._environment = environment
        self._gpus, self._read, self._clock = gpus, labels, clock
        self._labels: dict[str, Any] = {}
        self._looks = 0

    def watched(self) -> Surroundings:
        """Itself, looking again and again as long as the process lives."""
        threading.Thread(target=self._watch, name="surroundings", daemon=True).start()
        return self

    def spent(self) -> float | None:
        """USD of the whole run up to now; None while its parent has not said so."""
        return spent_at(self._labels, self._clock())

    def look(self) -> None:
        """Look once."""
        self.gpu_percent = self._gpus(self._environment)
        if self._looks % MONEY_EVERY == 0:
            self._labels = self._read(self._environment) or self._labels
        self._looks += 1

    def _watch(self) -> None:
        while True:
            self.look()
            time.sleep(EVERY)
