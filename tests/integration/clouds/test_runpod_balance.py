import pytest

from blocks.runpod.balance import balance
from runner.errors import TryAgain
from tests.integration.clouds.runpod_rig import order, rented


def test_the_balance_comes_from_graphql() -> None:
    """REST v2 does not know it."""
    with rented() as it:
        it.cloud.create(order())
        found = balance(it.emulator.key, it.emulator.url)
    assert found.left == pytest.approx(100.0)
    assert found.spend_per_hour > 0.2


@pytest.mark.parametrize("ended", [True, "json"])
def test_the_end_of_graphql_is_one_sentence(ended: object) -> None:
    """Announced for early 2027: 410, with or without JSON."""
    with (
        rented(graphql_410=ended) as it,
        pytest.raises(TryAgain, match="does not tell the account's balance"),
    ):
        balance(it.emulator.key, it.emulator.url)


def test_a_bad_key_is_not_shown() -> None:
    """Neither is the query, which the package puts into its errors."""
    with rented() as it, pytest.raises(TryAgain) as refused:
        balance("rpa_wrong", it.emulator.url)
    assert "rpa_wrong" not in str(refused.value)
    assert refused.value.__cause__ is None
