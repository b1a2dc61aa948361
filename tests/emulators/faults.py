"""The switches of an emulator: what they are called, and how often they still act.

A switch that may be `true`, a number or `{gpu id: true | number}` acts always, that many times, or
so for one GPU.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StatusFault:
    """The answer that a switch asks for instead of the right one."""

    status: int
    retry_after: float | None = None
    hang: float = 0.0
    detail: str = "emulated fault"


class Faults:
    """The switches of one emulator; safe to use from several threads.

    `actions` are done once, when they arrive.
    """

    def __init__(self, defaults: Mapping[str, Any], actions: Collection[str]) -> None:
        self._defaults = defaults
        self._actions = actions
        self._set: dict[str, Any] = {}
        self._lock = threading.Lock()

    def __getitem__(self, name: str) -> Any:
        return self._set.get(name, self._defaults[name])

    def merge(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Set these switches and return the actions among them; ValueError for an unknown one."""
        if unknown := set(changes) - set(self._defaults) - set(self._actions) - {"reset"}:
            raise ValueError(f"unknown switches: {', '.join(sorted(unknown))}")
        with self._lock:
            if changes.get("reset"):
                self._set.clear()
            self._set |= {name: value for name, value in changes.items() if name in self._defaults}
        return {name: value for name, value in changes.items() if name in self._actions}

    def as_dict(self) -> dict[str, Any]:
        """Every switch that was set, as it stands now."""
        return dict(self._set)

    def take(self, name: str, gpu: str | None = None) -> bool:
        """Whether the switch acts this time; a counted one is used up by it."""
        with self._lock:
            return _use(self._set, name, gpu)

    def take_status(self, name: str, method: str = "", path: str = "") -> StatusFault | None:
        """The answer that `create_status`, `list_status`, `delete_status` or `status` wants now."""
        with self._lock:
            value = self[name]
            for fault in value if isinstance(value, list) else [value]:
                if isinstance(fault, int) and fault:
                    return StatusFault(fault)
                if isinstance(fault, dict) and _fits(fault, method, path):
                    fault["times"] = fault.get("times", 1) - 1
                    return StatusFault(
                        fault.get("status", 0),
                        fault.get("retry_after"),
                        fault.get("hang", 0.0),
                        fault.get("detail", StatusFault.detail),
                    )
        return None


def _use(values: dict[str, Any], name: str, gpu: str | None) -> bool:
    value = values.get(name)
    if isinstance(value, dict):
        return gpu is not None and _use(value, gpu, None)
    if isinstance(value, bool) or not value:
        return bool(value)
    values[name] = value - 1
    return True


def _fits(fault: dict[str, Any], method: str, path: str) -> bool:
    return (
        fault.get("times", 1) > 0
        and fault.get("method", method).upper() == method.upper()
        and re.search(fault.get("path", ""), path) is not None
    )
