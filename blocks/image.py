"""The container image of a rented pod, and what it needs of its host; the same on every cloud."""

from __future__ import annotations

import re

from blocks.cloud import PodOrder

# axolotl's own image for clouds. 0.19.0 is the version that our plugin is tested with.
IMAGE = "axolotlai/axolotl-cloud:0.19.0"
IMAGE_CUDA = "12.8"


def image_of(order: PodOrder) -> str | None:
    """The image to name in a create call; None where the order's template brings its own."""
    return order.image or (None if order.template else IMAGE)


def min_cuda(order: PodOrder) -> str | None:
    """The lowest CUDA version that a host may have: asked for, else what the image needs."""
    if order.min_cuda or order.template:
        return order.min_cuda
    return cuda_of(order.image)


def cuda_of(image: str | None) -> str | None:
    """The CUDA version of an image, from its tag (`…-cu128-…` is 12.8); None when it says none."""
    if image is None:
        return IMAGE_CUDA
    said = re.search(r"cu(\d{2})(\d)(?!\d)", image)
    return f"{said[1]}.{said[2]}" if said else None
