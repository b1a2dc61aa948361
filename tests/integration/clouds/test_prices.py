"""What the clouds ask for each of several GPUs, over their emulators."""

from __future__ import annotations

from dataclasses import replace

import pytest

from blocks.cloud import Cloud
from blocks.runpod.candidates import storage_price
from tests.integration.clouds import runpod_rig, vast_rig

A5000, A40, H200 = "NVIDIA RTX A5000", "NVIDIA A40", "NVIDIA H200"


def test_runpods_prices_are_those_of_the_cheaper_tier_with_the_disks() -> None:
    """In one look at the catalog; what it does not have, or is too dear, is left out."""
    with runpod_rig.rented() as it:
        order = runpod_rig.order(max_price_per_hour=2.0, cloud_type="ALL")
        found = it.cloud.prices(replace(order, gpus=(A5000, A40, H200, "NVIDIA Nothing")))
        asked = it.calls("GET", "/v2/catalog/gpus")
    disks = storage_price(order.disk_gb + order.volume_gb)
    assert found == {
        A5000: pytest.approx(0.16 + disks, abs=1e-4),
        A40: pytest.approx(0.40 + disks, abs=1e-4),
    }
    assert len(asked) == 2, "one for each tier"


def test_runpods_price_is_known_also_when_none_is_free() -> None:
    """A list that is made now is asked with later, too."""
    with runpod_rig.rented(stock={A40: {}}) as it:
        assert A40 in it.cloud.prices(replace(runpod_rig.order(), gpus=(A40,)))


def test_vasts_prices_are_those_of_the_offer_that_would_be_taken() -> None:
    """Of each kind; a name that RunPod uses is understood, and none on offer has no price."""
    with vast_rig.rented() as it:
        order = vast_rig.order()
        asked = (A5000, "NVIDIA GeForce RTX 4090", "NVIDIA B200")
        found = it.cloud.prices(replace(order, gpus=asked))
        single: Cloud = it.cloud
        assert set(found) == set(asked[:2])
        for gpu in asked[:2]:
            assert found[gpu] == single.price(replace(order, gpus=(gpu,)))
