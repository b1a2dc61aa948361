"""The limits that a run may not pass, whoever looks."""

from __future__ import annotations

from datetime import UTC, datetime

from runner.errors import TrainingFailed
from tasks.run import Order, Run


def check_deadline(run: Run, order: Order, now: datetime | None = None) -> None:
    """TrainingFailed `deadline` when the run should be over by now."""
    if (now or datetime.now(UTC)) >= order.deadline(run):
        hours = order.settings.max_hours
        raise TrainingFailed("deadline", f"not done within max_hours: {hours:g}")
