"""The switches: what they are called, and how often they still act.

A switch that may be `true`, a number or `{gpu id: true | number}` acts always, that many times, or
so for one GPU. The meaning of each is in the docstring of the package.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from typing import Any

CAPACITY_TEXTS = {
    "standard": "There are no longer any instances available with the requested specifications. "
    "Please refresh and try again.",
    "disk": "There are no longer any instances available with enough disk space.",
    "machine": "This machine does not have the resources to deploy your pod. "
    "Please try a different machine",
    "spot": "There are no instances available with the request specifications. "
    "Please try again later.",
    "generic": "Something went wrong. Please try again later or contact support.",
}

DEFAULTS: dict[str, Any] = {
    # lifecycle
    "boot_seconds": 0.1,
    "image_pull_seconds": 0.1,
    "restart_seconds": 0.2,
    "grace_seconds": 0.0,
    "never_ready": 0,
    "empty_machine": 0,
    "runtime_null_for": 0.0,
    "telemetry_null": False,
    "telemetry": {"gpu": 90, "gpu_memory": 60, "cpu": 40, "memory": 30},
    "resume_full": 0,
    "zero_gpus": 0,
    "ignore_timers": False,
    "keep_folders": False,
    # visibility
    "visibility_lag": 0.0,
    "delete_lag": 0.0,
    "delete_lag_status": None,
    "pages": 0,
    # create
    "create_5xx_after": 0,
    "create_timeout_after": 0,
    "create_timeout_hold": 0.0,
    "create_400_capacity": 0,
    "capacity_text": "standard",
    "create_status": None,
    "stock": {},
    "stale_high": False,
    "cuda": {},
    "templates": {},
    # any call
    "status": None,
    "list_status": None,
    "delete_status": None,
    "graphql_410": False,
    "cloudflare": True,
    # keys and money
    "scoped_key_v2": True,
    "key_scope_403": False,
    "billing_lag": 0.0,
    # a lost host
    "host_lost_mode": "stale",
}

# Done once, when they arrive.
ACTIONS = ("balance", "host_lost", "kill_pod", "restart_container")


@dataclass(frozen=True)
class StatusFault:
    """The answer that a switch asks for instead of the right one."""

    status: int
    retry_after: float | None = None
    hang: float = 0.0
    detail: str = "emulated fault"


class Faults:
    """The switches of one emulator; safe to use from several threads."""

    def __init__(self) -> None:
        self._set: dict[str, Any] = {}
        self._lock = threading.Lock()

    def __getitem__(self, name: str) -> Any:
        return self._set.get(name, DEFAULTS[name])

    def merge(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Set these switches and return the actions among them; ValueError for an unknown one."""
        if unknown := set(changes) - set(DEFAULTS) - set(ACTIONS) - {"reset"}:
            raise ValueError(f"unknown switches: {', '.join(sorted(unknown))}")
        with self._lock:
            if changes.get("reset"):
                self._set.clear()
            self._set |= {name: value for name, value in changes.items() if name in DEFAULTS}
        return {name: value for name, value in changes.items() if name in ACTIONS}

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

    def capacity_text(self) -> str:
        """What a refused create says: the next of a list, one of CAPACITY_TEXTS, or as given."""
        value = self["capacity_text"]
        if isinstance(value, list):
            with self._lock:
                value.append(value.pop(0))
                value = value[-1]
        return CAPACITY_TEXTS.get(value, str(value))


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
