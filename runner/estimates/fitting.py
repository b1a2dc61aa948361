"""On which GPUs a training fits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

from runner.estimates.gpus import Gpu, all_gpus
from runner.estimates.vram import Vram

# Of 21 published peaks the estimate was 3 % low at the median, 10 to 12 % in two cases and 17 to
# 21 % in four (tests/unit/runner/estimates/published.py).
MARGIN = 1.15


class Fit(StrEnum):
    """`TIGHT` is within the margin of the estimate; `NEVER` has no room for the weights alone."""

    YES = "fits"
    TIGHT = "tight"
    NO = "too small"
    NEVER = "too small for the weights"


def fit(gpu: Gpu, need: Vram) -> Fit:
    """How the need fits into this GPU."""
    if need.least > gpu.memory:
        return Fit.NEVER
    if need.total > gpu.memory:
        return Fit.NO
    return Fit.TIGHT if need.total * MARGIN > gpu.memory else Fit.YES


def fitting(need: Vram, among: Iterable[Gpu] | None = None) -> list[Gpu]:
    """The GPUs with room and the margin, the smallest first."""
    gpus = all_gpus() if among is None else among
    fine = [gpu for gpu in gpus if fit(gpu, need) is Fit.YES]
    return sorted(fine, key=lambda gpu: gpu.memory_mib)


def cheapest_first(gpus: Sequence[Gpu], prices: dict[str, float]) -> list[Gpu]:
    """Those with a price, the least first; of two that cost the same the faster one."""
    priced = [gpu for gpu in gpus if gpu.name in prices]
    return sorted(priced, key=lambda gpu: (prices[gpu.name], -gpu.tflops))
