from __future__ import annotations

import pytest

from blocks.vast.offers import gpu_name
from runner.estimates.fitting import MARGIN, Fit, cheapest_first, fit, fitting
from runner.estimates.gpus import all_gpus, gpu_named
from runner.estimates.vram import Vram


def _need(total: float, least: float = 1.0) -> Vram:
    return Vram({"weights": least}, total, total, least, "loss")


@pytest.mark.parametrize(
    ("total", "least", "expected"),
    [(30, 10, Fit.YES), (43, 10, Fit.TIGHT), (46, 10, Fit.NO), (60, 46, Fit.NEVER)],
)
def test_a_need_fits_with_a_margin_just_so_or_not(
    total: float, least: float, expected: Fit
) -> None:
    """An A40 has 45 GiB."""
    gpu = gpu_named("NVIDIA A40")
    assert gpu is not None
    assert fit(gpu, _need(total, least)) is expected


def test_all_gpus_that_fit_have_room_for_the_margin() -> None:
    """The smallest first."""
    found = fitting(_need(60))
    assert [gpu.memory for gpu in found] == sorted(gpu.memory for gpu in found)
    assert found
    assert all(gpu.memory >= 60 * MARGIN for gpu in found)


def test_the_cheapest_is_first_and_of_two_the_faster() -> None:
    """What has no price can't be had."""
    prices = {"NVIDIA L40S": 0.8, "NVIDIA L40": 0.8, "NVIDIA A40": 0.4}
    names = [gpu.name for gpu in cheapest_first(all_gpus(), prices)]
    assert names == ["NVIDIA A40", "NVIDIA L40S", "NVIDIA L40"]


@pytest.mark.parametrize(
    "name",
    ["NVIDIA A40", "A40", "nvidia a40", "NVIDIA GeForce RTX 4090", "RTX_4090", "RTX 6000Ada"],
)
def test_a_gpu_is_known_by_the_names_of_both_clouds(name: str) -> None:
    """As task files may write it."""
    assert gpu_named(name) is not None


def test_the_catalogue_is_whole_and_each_name_means_one_gpu() -> None:
    """And what RunPod calls it is what Vast is asked for by its own name."""
    names = [gpu.name for gpu in all_gpus()]
    assert len(set(names)) == len(names) >= 20
    for gpu in all_gpus():
        assert gpu.memory_mib > 16_000
        assert 50 < gpu.tflops < 3000
        assert gpu.source.startswith("https://")
        assert gpu_name(gpu.name) == gpu.vast
