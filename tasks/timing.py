"""Seconds that each phase of a run took, added up over revivals, in the run's labels."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tasks.standing import recall, remember
from tasks.wandb_story import phase as tell_phase


@contextmanager
def timed(run_id: str, phase: str) -> Iterator[None]:
    """Add the length of the block to `seconds.<phase>`, also when it fails."""
    began = time.monotonic()
    try:
        yield
    finally:
        before = float(recall(run_id).get(f"seconds.{phase}", "0"))
        seconds = round(before + time.monotonic() - began, 3)
        remember(run_id, {f"seconds.{phase}": seconds})
        tell_phase(run_id, phase, seconds)
