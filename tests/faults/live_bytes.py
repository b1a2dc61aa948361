"""Counts the bytes of living tensors on any device, as torch.cuda.max_memory_allocated does."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


class LiveBytes(TorchDispatchMode):  # type: ignore[misc]
    """`peak` is the most that was alive at once inside of it, with what is `held` from before."""

    def __init__(self, held: Iterable[torch.Tensor] = ()) -> None:
        super().__init__()
        self._alive: dict[int, int] = {}
        self.now = 0
        for tensor in held:
            self._add(tensor)
        self.peak = self.now

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run the operation and count what it made."""
        made = function(*args, **(kwargs or {}))
        for each in tree_iter(made):
            if isinstance(each, torch.Tensor):
                self._add(each)
        self.peak = max(self.peak, self.now)
        return made

    def _add(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._alive:
            return
        self._alive[key] = storage.nbytes()
        self.now += self._alive[key]
        weakref.finalize(storage, self._remove, key)

    def _remove(self, key: int) -> None:
        self.now -= self._alive.pop(key, 0)
