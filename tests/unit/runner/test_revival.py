import pytest

from runner.revival import Death, judge, read_death

NOW = 100_000.0


@pytest.mark.parametrize(
    ("death", "run_count", "verdict"),
    [
        (Death(NOW), 1, "revive"),
        (Death(NOW - 200, 2, NOW - 60), 3, "revive"),
        (Death(NOW - 200, 3, NOW - 10), 4, "wait"),  # the last one may be on its way
        (Death(NOW - 200, 3, NOW - 70), 4, "give up"),
        (Death(NOW - 601, 1, NOW - 300), 2, "give up"),
        (Death(NOW), 21, "give up"),
    ],
)
def test_a_dead_run_is_given_up_after_ten_minutes_or_three_revivals(
    death: Death, run_count: int, verdict: str
) -> None:
    """What can't live must not be started for ever, and its pod must not wait for it."""
    assert judge(death, run_count, NOW) == verdict


def test_a_death_is_one_label() -> None:
    """An empty one is none."""
    assert read_death(Death(NOW).again(NOW + 5).to_text()) == Death(NOW, 1, NOW + 5)
    assert read_death("") is None
