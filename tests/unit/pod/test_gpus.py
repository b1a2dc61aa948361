"""How many processes a pod's trainer has."""

from pathlib import Path

import pytest

from pod.gpus import gpus_here


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
