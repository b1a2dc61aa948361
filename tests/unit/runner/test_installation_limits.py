from typing import Any

import pytest

from runner.errors import ConfigError
from runner.installation import InstallationLimits, read_limits


@pytest.mark.parametrize(
    ("value", "limits"),
    [
        (None, InstallationLimits(4, None)),
        ({}, InstallationLimits(4, None)),
        ({"pods": 4, "dollars_per_day": None}, InstallationLimits(4, None)),
        ({"pods": 8, "dollars_per_day": 50}, InstallationLimits(8, 50.0)),
        ({"pods": None}, InstallationLimits(None, None)),
        ({"pods": 0, "dollars_per_day": 0}, InstallationLimits(0, 0.0)),
        ({"dollars_per_day": "2.5"}, InstallationLimits(4, 2.5)),
        ('{"pods": 2, "dollars_per_day": 1e1}', InstallationLimits(2, 10.0)),
    ],
)
def test_limits_are_read_as_people_write_them(value: Any, limits: InstallationLimits) -> None:
    """JSON from the UI, also as text; what is left out has its default."""
    assert read_limits(value) == limits


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("four", "found 'four'"),
        ([4], "found a list"),
        (7, "found 7"),
        ({"pods": "many"}, "found 'many' as pods"),
        ({"pods": 2.5}, "found 2.5 as pods"),
        ({"pods": True}, "found true as pods"),
        ({"dollars_per_day": -1}, "found -1 as dollars_per_day"),
        ({"dollars": 5}, "found the key 'dollars'"),
    ],
)
def test_a_limit_that_can_not_be_read_lets_nothing_be_rented(value: Any, said: str) -> None:
    """With what was found, what was expected and where to correct it."""
    with pytest.raises(ConfigError, match="the Prefect variable axr_limits") as wrong:
        read_limits(value)
    assert said in str(wrong.value)
    assert "correct it in the UI" in str(wrong.value)


def test_the_default_is_written_as_it_is_read() -> None:
    """Registered once, then the owner's."""
    assert InstallationLimits().as_variable() == {"pods": 4, "dollars_per_day": None}
    assert read_limits(InstallationLimits(2, 9.5).as_variable()) == InstallationLimits(2, 9.5)
