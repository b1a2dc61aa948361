import json
from datetime import UTC, datetime, timedelta

import pytest

from tasks.spending import cost_per_hour, cost_so_far, spent_words, used_up_at

BEGAN = datetime(2026, 1, 1, 22, tzinfo=UTC)


def _pod(
    hours: float | None = None, *, price: float = 2.0, at: float = 0.0, volume: float = 0.0
) -> str:
    """A bill: `hours` long (None: it lives), from `at` hours after BEGAN."""
    created = BEGAN + timedelta(hours=at)
    ended = None if hours is None else (created + timedelta(hours=hours)).isoformat()
    return json.dumps(
        {
            "cloud": "runpod",
            "created": created.isoformat(),
            "terminated": ended,
            "price_per_hour": price,
            "volume_per_hour": volume,
        }
    )


def _after(hours: float) -> datetime:
    return BEGAN + timedelta(hours=hours)


def test_all_pods_of_all_attempts_count() -> None:
    """Also those that are gone, and on other clouds."""
    facts = {"pod.a": _pod(0.5), "pod.b": _pod(at=0.5, price=4.0), "stage": "x"}
    assert cost_so_far(facts, _after(1)) == pytest.approx(0.5 * 2 + 0.5 * 4)
    assert cost_per_hour(facts) == 4.0


def test_of_a_day_only_its_own_part_counts() -> None:
    """A pod that lives over midnight is shared by two days."""
    midnight = _after(2)
    facts = {"pod.a": _pod(1), "pod.b": _pod(at=1)}
    assert cost_so_far(facts, _after(5), since=midnight) == pytest.approx(3 * 2)


def test_a_budget_lasts_as_long_as_the_present_price_allows() -> None:
    """5 $ at 2 $ an hour are two and a half hours, from the creation."""
    facts = {"pod.a": _pod()}
    assert used_up_at(facts, 5.0, _after(1)) == _after(2.5)
    assert used_up_at(facts, 1.0, _after(1)) == _after(0.5)


@pytest.mark.parametrize("facts", [{}, {"pod.a": _pod(1)}, {"pod.a": _pod(price=0.0)}])
def test_where_nothing_is_paid_a_budget_lasts_for_ever(facts: dict[str, str]) -> None:
    """No pod, none that lives, or this machine, which costs nothing."""
    assert used_up_at(facts, 5.0, _after(9)) is None


def test_a_clock_that_is_behind_the_clouds_costs_nothing() -> None:
    """A pod of the future has not begun."""
    assert cost_so_far({"pod.a": _pod(at=1)}, BEGAN) == 0.0


def test_what_was_spent_is_said_with_what_for() -> None:
    """Each pod, and the network volume that was paid beside it."""
    facts = {"pod.a": _pod(1), "pod.b": _pod(1, price=2.5, volume=0.5)}
    assert spent_words(facts, _after(2)) == (
        "$4.50 spent: the pod a on runpod $2.00, the pod b on runpod $2.00, network volume $0.50"
    )
    many = {f"pod.{n}": _pod(1) for n in range(9)}
    assert spent_words(many, _after(2)).endswith("the pod 5 on runpod $2.00, 3 more pods")
    assert spent_words({}, BEGAN) == "$0.00 spent"
