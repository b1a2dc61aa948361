from typing import Any

import pytest

from blocks.vast.offers import candidates, country, gpu_name, query
from runner.errors import ConfigError, NoCapacity
from tests.integration.clouds.vast_rig import order


def _offer(**changes: Any) -> dict[str, Any]:
    values = {
        "id": 1,
        "machine_id": 10,
        "gpu_name": "RTX A5000",
        "gpu_ram": 24_564,
        "dph_base": 0.2,
        "dph_total": 0.21,
        "min_bid": 0.1,
        "inet_up_cost": 0.002,
        "inet_down_cost": 0.002,
        "reliability2": 0.99,
    }
    return {**values, **changes}


def _bid_offer(**changes: Any) -> dict[str, Any]:
    return _offer(**{"dph_base": 0.1, "dph_total": 0.11, **changes})


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("RTX A5000", "RTX A5000"),
        ("NVIDIA RTX A5000", "RTX A5000"),
        ("RTX_4090", "RTX 4090"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA A40", "A40"),
        ("NVIDIA A100 80GB PCIe", "A100 PCIE"),
        ("NVIDIA A100-SXM4-80GB", "A100 SXM4"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000Ada"),
        ("NVIDIA L40S", "L40S"),
    ],
)
def test_names_of_both_clouds_are_understood(written: str, name: str) -> None:
    """One list of GPUs serves a run that fails over."""
    assert gpu_name(written) == name


@pytest.mark.parametrize(
    ("place", "code"),
    [("EU-RO-1", "RO"), ("US-KS-2", "US"), ("CA-MTL-1", "CA"), ("se", "SE"), ("EUR-IS-1", "IS")],
)
def test_places_of_runpod_are_countries(place: str, code: str) -> None:
    """Vast has no data centers to name."""
    assert country(place) == code


def test_every_wish_of_the_task_file_is_a_filter() -> None:
    """GB and Mbps as Vast counts them; the contract outlasts the run."""
    asked = order(
        gpus=("NVIDIA A40", "A40"),
        gpu_count=2,
        min_vcpu=8,
        min_ram_gb=64,
        min_download=500,
        min_upload=100,
        min_cuda="12.6",
        data_centers=("EU-RO-1", "US-KS-2"),
        cloud_type="SECURE",
        disk_gb=50,
        volume_gb=100,
        hours=5.0,
    )
    assert query(asked) == {
        "gpu_name": {"in": ["A40"]},
        "num_gpus": {"eq": 2},
        "disk_space": {"gte": 150},
        "reliability": {"gte": 0.95},
        "duration": {"gte": 6 * 3600},
        "cpu_cores_effective": {"gte": 8},
        "cpu_ram": {"gte": 64_000},
        "inet_down": {"gte": 500},
        "inet_up": {"gte": 100},
        "cuda_max_good": {"gte": 12.6},
        "geolocation": {"in": ["RO", "US"]},
        "datacenter": {"eq": True},
    }


def test_a_gpu_must_be_named() -> None:
    """Vast has hundreds of kinds."""
    with pytest.raises(ConfigError, match="name at least one GPU"):
        query(order(gpus=()))


def test_the_users_order_of_gpus_comes_first_then_the_price_then_the_traffic() -> None:
    """A list of GPUs is a list of preferences."""
    found = [
        _offer(id=1, gpu_name="A40", dph_total=0.15),
        _offer(id=2, dph_total=0.25),
        _offer(id=3, dph_total=0.21, inet_up_cost=0.02),
        _offer(id=4, dph_total=0.2103),
    ]
    ranked = candidates(found, order(gpus=("NVIDIA RTX A5000", "NVIDIA A40")))
    assert [one.offer for one in ranked] == [4, 3, 2, 1]


@pytest.mark.parametrize(
    ("changes", "bid"),
    [
        ({}, 0.12),
        ({"max_bid_per_gpu": 0.11}, 0.11),
        ({"max_bid_per_gpu": 0.5}, 0.12),
        ({"max_price_per_hour": 0.115}, 0.105),
        ({"max_bid_per_gpu": 0.055, "gpu_count": 2}, 0.11),
    ],
)
def test_bids(changes: dict[str, Any], bid: float) -> None:
    """A fifth above what wins, within both limits; storage ($0.01 here) is no part of it."""
    (one,) = candidates([_bid_offer()], order(spot=True, **changes))
    assert one.bid == pytest.approx(bid)
    assert one.price_per_hour == pytest.approx(bid + 0.01)


@pytest.mark.parametrize("limits", [{"max_bid_per_gpu": 0.09}, {"max_price_per_hour": 0.105}])
def test_a_bid_that_can_not_win_is_not_made(limits: dict[str, Any]) -> None:
    """And it is said from which price it could."""
    with pytest.raises(NoCapacity, match=r"RTX A5000 from \$0.10"):
        candidates([_bid_offer()], order(spot=True, **limits))


def test_one_bid_for_each_machine_is_enough() -> None:
    """The same bid for its next GPU would not win either; another bid may."""
    found = [_bid_offer(id=1), _bid_offer(id=2, machine_id=11), _bid_offer(id=3)]
    asked = order(spot=True)
    assert [one.offer for one in candidates(found, asked)] == [1, 2]
    tried = [(1, 0.12), (3, 0.12)]
    assert [one.offer for one in candidates(found, asked, tried)] == [2]
    dearer = [_bid_offer(id=1, min_bid=0.2), _bid_offer(id=2, machine_id=11)]
    assert [one.offer for one in candidates(dearer, asked, tried)] == [2, 1]


def test_a_gpu_with_less_memory_than_its_name_says_is_left_out() -> None:
    """Vast's A100 SXM4 has 40 or 80 GB."""
    found = [
        _offer(id=1, gpu_name="A100 SXM4", gpu_ram=40_960),
        _offer(id=2, gpu_name="A100 SXM4", gpu_ram=81_920, dph_total=0.4),
    ]
    assert [one.offer for one in candidates(found, order(gpus=("NVIDIA A100-SXM4-80GB",)))] == [2]
    assert [one.offer for one in candidates(found, order(gpus=("A100 SXM4",)))] == [1, 2]


def test_machines_that_turned_out_dead_are_passed_over() -> None:
    """All of their offers."""
    found = [_offer(id=1), _offer(id=2), _offer(id=3, machine_id=11)]
    asked = order(avoid=frozenset({"machine 10"}))
    assert [one.offer for one in candidates(found, asked)] == [3]
