"""The run's budget: how much of it is used, and who is told.

It counts every pod that the run ever had, also those before a `resume` of the user. What it was
told and what it may spend are labels of the run, so a parent that is started again knows both.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from blocks.cloud import Pod
from blocks.logs import log
from runner.deadlines import Deadline
from runner.errors import TrainingFailed
from runner.notice import dollars
from runner.settings import RunnerSettings
from tasks.notify import deliver
from tasks.run import Order, Run
from tasks.spending import cost_so_far, spent_words, used_up_at
from tasks.standing import remember

# Percent of the budget at which people are told, once each.
TOLD_AT = (50, 80)
# A pod that is paid for less than a minute is of no use to anybody.
LEAST_PAID = 60.0
ROUNDED = 0.0001  # USD per hour: clouds round their prices, and we do


def budget_of(order: Order, known: Mapping[str, str]) -> float | None:
    """USD that the run may spend: what `axolotl-runner resume --budget` said, else the task file;
    None without a limit.
    """
    return _budget(order.settings, known)


def budget_deadline(
    settings: RunnerSettings, known: Mapping[str, str], now: datetime
) -> Deadline | None:
    """When the budget ends a run and its pods, for who looks from outside: not before the parent's
    own word on it, which allows for the time to save. None while it doesn't.
    """
    budget = _budget(settings, known)
    ends = used_up_at(known, budget, now) if budget is not None else None
    if ends is None:
        return None
    allowed = datetime.fromtimestamp(float(known.get("ends_at") or 0), UTC)
    why = f"budget: {budget:g} is used up: {spent_words(known, now)}"
    return Deadline(max(ends, allowed), why, "budget")


def most_words(order: Order) -> str:
    """What the run can cost in the end, by its limits."""
    settings = order.settings
    by_time = settings.max_hours * settings.max_price_per_hour
    limits = f"max_hours: {settings.max_hours:g} × max_price_per_hour: "
    limits += f"{settings.max_price_per_hour:g}"
    if settings.budget is not None and settings.budget < by_time:
        return f"The run costs {dollars(settings.budget)} at most, its budget"
    said = "no budget is set" if settings.budget is None else "the budget is higher"
    return f"The run costs {dollars(by_time)} at most: {limits} ({said})"


def check_budget(
    run: Run, order: Order, known: Mapping[str, str], now: datetime, *, spare: float = 0.0
) -> None:
    """TrainingFailed `budget` when the budget is used up, and was so `spare` seconds ago: a step
    that brings the model to safety may take that long.
    """
    budget = budget_of(order, known)
    if budget is None or cost_so_far(known, now - timedelta(seconds=spare)) < budget:
        return
    raise TrainingFailed(
        "budget",
        f"budget: {budget:g} is used up: {spent_words(known, now)}; it goes on with: "
        f"axolotl-runner resume {run.id[:8]} --budget USD",
    )


def left_of_budget(
    order: Order, known: Mapping[str, str], now: datetime | None = None
) -> float | None:
    """USD that the run may still spend, None without a budget."""
    budget = budget_of(order, known)
    return None if budget is None else budget - cost_so_far(known, now)


def most_per_hour(order: Order, left: float | None) -> float:
    """USD per hour that a new pod may cost: the task file's limit, and no more than what is left of
    the budget pays for LEAST_PAID seconds.
    """
    most = order.settings.max_price_per_hour
    return most if left is None else min(most, max(0.0, left) * 3600 / LEAST_PAID)


def is_too_dear(order: Order, pod: Pod) -> bool:
    """Whether a pod costs more than the task file's max_price_per_hour."""
    return pod.price_per_hour > order.settings.max_price_per_hour + ROUNDED


def seconds_left(order: Order, known: Mapping[str, str], now: datetime) -> float | None:
    """Seconds until the budget is used up at the present prices; None when that is never."""
    budget = budget_of(order, known)
    ends = used_up_at(known, budget, now) if budget is not None else None
    return None if ends is None else (ends - now).total_seconds()


def tell_of_budget(run: Run, order: Order, known: Mapping[str, str], now: datetime) -> None:
    """A notice when half, then when four fifths of the budget are used; of two at once the higher.

    Told anew when the budget was raised.
    """
    budget = budget_of(order, known)
    if budget is None:
        return
    spent = cost_so_far(known, now)
    marks = {
        level: f"told.budget.{level}.{budget:g}"
        for level in TOLD_AT
        if spent >= budget * level / 100
    }
    if not marks or marks[max(marks)] in known:
        return
    reached = max(marks)
    left = seconds_left(order, known, now)
    reason = f"{reached} % of budget: {budget:g} is used: {spent_words(known, now)}"
    if left is not None:
        reason += f"; the rest lasts {_duration(left)}"
    log().warning("%s", reason)
    facts = {"left": dollars(max(0.0, budget - spent))}
    deliver(run, order.settings.notify, "budget", reason, facts=facts, mark=marks[reached])
    remember(run.id, dict.fromkeys(marks.values(), "yes"))


def _budget(settings: RunnerSettings, known: Mapping[str, str]) -> float | None:
    raised = known.get("budget")
    return float(raised) if raised else settings.budget


def _duration(seconds: float) -> str:
    minutes = max(0.0, seconds) / 60
    return f"{minutes:.0f} minutes" if minutes < 120 else f"{minutes / 60:.1f} hours"
