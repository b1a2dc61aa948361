"""What images bring: their environment, for want of the images themselves.

Images are a mapping of image name to environment; "*" stands for every image that is not named.
The default is AXR_EMULATED_IMAGE_ENV: JSON of that form, or of one environment for all images.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

Images = Mapping[str, Mapping[str, str]]
VARIABLE = "AXR_EMULATED_IMAGE_ENV"


def default_images() -> Images:
    """What AXR_EMULATED_IMAGE_ENV says; nothing when it is unset."""
    given = json.loads(os.environ.get(VARIABLE) or "{}")
    if any(isinstance(value, str) for value in given.values()):
        return {"*": given}
    return dict(given)


def environment_of(image: str, images: Images) -> Mapping[str, str]:
    """The variables that this image brings."""
    return images.get(image) or images.get("*") or {}
