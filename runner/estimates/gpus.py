"""The GPUs that can be rented: names, memory and speed; the data lie in gpus.json."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

DATA = Path(__file__).with_name("gpus.json")


@dataclass(frozen=True)
class Gpu:
    """One kind of GPU: `name` is RunPod's, which Vast is asked with too, `vast` is what Vast calls
    it. `tflops` are dense bf16 ones. `list_price`: USD per hour, as once published, or unknown.
    """

    name: str
    vast: str
    memory_mib: int
    tflops: float
    list_price: float | None
    source: str

    @property
    def memory(self) -> float:
        """GiB."""
        return self.memory_mib / 1024


@lru_cache(maxsize=1)
def all_gpus() -> tuple[Gpu, ...]:
    """Every GPU of the catalogue, as it lists them."""
    return tuple(Gpu(**each) for each in json.loads(DATA.read_text("utf-8"))["gpus"])


def gpu_named(name: str) -> Gpu | None:
    """The GPU of this name, in RunPod's or Vast's spelling or without the maker's name."""
    wanted = _plain(name)
    return next((gpu for gpu in all_gpus() if wanted in (_plain(gpu.name), _plain(gpu.vast))), None)


def _plain(name: str) -> str:
    words = " ".join(name.replace("_", " ").casefold().split())
    return words.removeprefix("nvidia ").removeprefix("geforce ").removeprefix("tesla ")
