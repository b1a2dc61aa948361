"""Which alarms are the same trouble."""

from __future__ import annotations

import pytest

from runner.attempts import AttemptFacts
from runner.troubles import Trouble, trouble


def _alarm(onset: int, alarm: int, outcome: str = "loss_spike") -> AttemptFacts:
    return AttemptFacts(
        1, outcome, "it jumped", onset_step=onset, alarm_step=alarm, last_step=alarm  # type: ignore[arg-type]
    )  # fmt: skip


CRASH = AttemptFacts(1, "crash", "killed", last_step=22)


@pytest.mark.parametrize(
    ("attempts", "found"),
    [
        ([_alarm(24, 28)], Trouble(24, 28)),
        ([_alarm(24, 28), _alarm(24, 28)], Trouble(24, 28, 1)),
        ([_alarm(24, 28), _alarm(23, 30)], Trouble(23, 30, 1)),  # a day later, a little earlier
        ([_alarm(24, 28), _alarm(32, 35)], Trouble(24, 35, 1)),  # within the detector's delay
        ([_alarm(24, 28), _alarm(33, 36)], Trouble(33, 36)),  # beyond it
        ([_alarm(24, 28), _alarm(12, 15)], Trouble(12, 28, 1)),  # before it: no progress at all
        ([_alarm(24, 24, "nonfinite"), _alarm(28, 28, "nonfinite")], Trouble(24, 28, 1)),
        ([_alarm(24, 24, "nonfinite"), _alarm(29, 29, "collapse")], Trouble(29, 29)),
        ([_alarm(24, 28), CRASH, _alarm(24, 28)], Trouble(24, 28, 1)),
        ([_alarm(24, 28), _alarm(30, 34), _alarm(36, 40)], Trouble(24, 40, 2)),
        ([_alarm(24, 28), _alarm(24, 28), _alarm(60, 64)], Trouble(60, 64)),
        ([_alarm(20, 60), _alarm(95, 99)], Trouble(20, 99, 1)),  # a drift took 40 steps
        ([CRASH], None),
        ([], None),
    ],
)
def test_alarms_close_to_each_other_are_one_trouble(
    attempts: list[AttemptFacts], found: Trouble | None
) -> None:
    """Consecutive alarms are compared; attempts that ended otherwise decide nothing."""
    assert trouble(attempts) == found


def test_what_broke_without_an_alarm_is_known_by_its_last_step() -> None:
    """The guard was off; the verdict found broken weights at the end."""
    broken = AttemptFacts(1, "nonfinite", "nan", onset_step=30, last_step=40)
    assert trouble([broken]) == Trouble(30, 40)
    assert trouble([AttemptFacts(1, "collapse", "0", last_step=40)]) == Trouble(40, 40)
