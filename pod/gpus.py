"""The GPUs that this pod's trainer may use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

_DEVICE = re.compile(r"nvidia\d+")


def gpus_here(environment: Mapping[str, str], devices: Path = Path("/dev")) -> list[str]:
    """Their names as CUDA_VISIBLE_DEVICES has them; empty on a machine without any.

    That variable is believed where it is set. A container shows the devices of its own GPUs only,
    under the numbers that they have on the host, and CUDA counts them from 0.
    """
    chosen = environment.get("CUDA_VISIBLE_DEVICES")
    there = [path for path in devices.iterdir() if _DEVICE.fullmatch(path.name)]
    if chosen is None or not there:
        return [str(number) for number in range(len(there))]
    names = [name.strip() for name in chosen.split(",")]
    # CUDA itself stops at the first name that is none.
    end = next((place for place, name in enumerate(names) if name in ("", "-1")), len(names))
    return names[:end]
