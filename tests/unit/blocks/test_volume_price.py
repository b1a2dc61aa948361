import pytest

from blocks import clouds
from blocks.clouds import volume_price
from blocks.runpod.candidates import network_volume_price
from runner.errors import TryAgain


@pytest.mark.parametrize(
    ("gigabytes", "per_month"), [(0, 0.0), (100, 7.0), (1000, 70.0), (1500, 95.0)]
)
def test_a_network_volume_costs_by_its_size(gigabytes: float, per_month: float) -> None:
    """0.07 $ per GB and month, above a terabyte 0.05 $."""
    assert network_volume_price(gigabytes) * 720 == pytest.approx(per_month)


def test_the_price_of_a_volume_is_part_of_what_a_run_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is known; no run waits for it."""

    class Account:
        price: float | Exception = 0.01

        def volume_price(self, volume: str) -> float:
            if isinstance(self.price, Exception):
                raise self.price
            return self.price

    account = Account()
    monkeypatch.setattr(clouds, "runpod_cloud", lambda: account)
    assert volume_price("runpod", "vol_1") == 0.01
    assert volume_price("runpod", None) == 0.0
    assert volume_price("local", "vol_1") == 0.0
    account.price = TryAgain("503")
    assert volume_price("runpod", "vol_1") == 0.0
