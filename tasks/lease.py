"""The lease of a run's pods: the parent says again and again that it lives and pays for them.

Labels of the run's flow run, which its pod reads: `axr.lease`, when it was last renewed, and
`axr.ends_at`, when the budget will be used up at the present prices (both Unix seconds; the second
is empty without a budget); `axr.spent`, what the run had cost at that time and costs per hour, for
people to see. A pod whose lease has not been renewed for SECONDS ends itself when no trainer runs
on it, whatever has become of the control side.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tasks.budget import budget_of
from tasks.run import Order, Run
from tasks.spending import cost_per_hour, cost_so_far, used_up_at
from tasks.standing import recall, remember

# How often a parent renews, and how long a pod believes it. A control machine that is restarted, or
# moved, is back within a quarter of an hour.
RENEW_EVERY = 60.0
SECONDS = 900


def renew(
    run: Run,
    order: Order,
    now: datetime,
    *,
    known: Mapping[str, str] | None = None,
    spare: float = 0.0,
) -> None:
    """Renew the lease of the run's pods at `now`.

    Args:
        run: whose parent this is.
        order: says what the run may spend.
        now: the moment of renewal.
        known: the run's facts, when the caller has just read them.
        spare: seconds by which a step that saves the model may pass the end of the budget.
    """
    facts = recall(run.id) if known is None else known
    budget = budget_of(order, facts)
    ends = used_up_at(facts, budget, now) if budget is not None else None
    ends_at = "" if ends is None else int(ends.timestamp() + spare)
    spent = f"{cost_so_far(facts, now):.4f} {cost_per_hour(facts):.4f}"
    remember(run.id, {"lease": int(now.timestamp()), "ends_at": ends_at, "spent": spent})


def spent_at(labels: Mapping[str, Any], now: float) -> float | None:
    """USD that the run of these labels has cost up to `now` (Unix seconds); None when they do not
    say.
    """
    try:
        spent, per_hour = map(float, str(labels["axr.spent"]).split())
        return spent + per_hour * max(0.0, now - float(labels["axr.lease"])) / 3600
    except (KeyError, ValueError):
        return None
