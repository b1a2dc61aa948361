"""The GPUs that this pod's trainer may use, and how busy they are."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

ASKED_WITHIN = 10.0  # seconds; a driver in trouble does not answer at all
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


def gpu_use(
    environment: Mapping[str, str],
    *,
    run: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run,
    devices: Path = Path("/dev"),
) -> float | None:
    """The mean use of these GPUs in percent, as nvidia-smi has it; None where it can't be told."""
    names = gpus_here(environment, devices)
    if not names:
        return None
    asked = ["nvidia-smi", "-i", ",".join(names)]
    asked += ["--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
    try:
        done = run(asked, capture_output=True, text=True, timeout=ASKED_WITHIN, check=True)
        used = [float(line) for line in done.stdout.split()]
    except (OSError, ValueError, subprocess.SubprocessError):  # "[N/A]" on some cards
        return None
    return sum(used) / len(used) if used else None
