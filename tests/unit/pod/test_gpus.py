"""How many processes a pod's trainer has."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pod.gpus import gpu_use, gpus_here


@pytest.mark.parametrize(
    ("devices", "variable", "found"),
    [
        (["nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"], None, ["0", "1"]),
        (["nvidia5", "nvidiactl"], None, ["0"]),
        (["nvidiactl"], None, []),
        ([], "0,1", []),
        (["nvidia0", "nvidia1", "nvidia2"], "2, 0", ["2", "0"]),
        (["nvidia0", "nvidia1"], "", []),
        (["nvidia0", "nvidia1"], "0,-1,1", ["0"]),
        (["nvidia0"], "GPU-8a1b", ["GPU-8a1b"]),
    ],
)
def test_the_gpus_of_the_container_are_found(
    tmp_path: Path, devices: list[str], variable: str | None, found: list[str]
) -> None:
    """Its devices keep the host's numbers; the variable narrows them down, and invents none."""
    for name in devices:
        (tmp_path / name).touch()
    environment = {} if variable is None else {"CUDA_VISIBLE_DEVICES": variable}
    assert gpus_here(environment, tmp_path) == found


def _says(text: str) -> Callable[..., Any]:
    return lambda asked, **how: subprocess.CompletedProcess(asked, 0, stdout=text, stderr="")


def _fails(error: Exception) -> Callable[..., Any]:
    def fail(asked: list[str], **how: Any) -> Any:
        raise error

    return fail


@pytest.mark.parametrize(
    ("run", "use"),
    [
        (_says("97\n93\n"), 95.0),
        (_says("[N/A]\n"), None),
        (_says(""), None),
        (_fails(FileNotFoundError()), None),
        (_fails(subprocess.TimeoutExpired("nvidia-smi", 10)), None),
        (_fails(subprocess.CalledProcessError(9, "nvidia-smi")), None),
    ],
)
def test_how_busy_the_gpus_are(tmp_path: Path, run: Callable[..., Any], use: float | None) -> None:
    """The mean of all; a driver that does not say is unknown, never idle."""
    for name in ("nvidia0", "nvidia1"):
        (tmp_path / name).touch()
    assert gpu_use({}, run=run, devices=tmp_path) == use


def test_without_gpus_nobody_is_asked(tmp_path: Path) -> None:
    """Not even whether there is an nvidia-smi."""
    assert gpu_use({}, run=_fails(AssertionError()), devices=tmp_path) is None
