"""RunPod's switches; the meaning of each is in the docstring of the package."""

from __future__ import annotations

from typing import Any

from tests.emulators import faults

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


class Faults(faults.Faults):
    """The switches of one RunPod."""

    def __init__(self) -> None:
        super().__init__(DEFAULTS, ACTIONS)

    def capacity_text(self) -> str:
        """What a refused create says: the next of a list, one of CAPACITY_TEXTS, or as given."""
        value = self["capacity_text"]
        if isinstance(value, list):
            with self._lock:
                value.append(value.pop(0))
                value = value[-1]
        return CAPACITY_TEXTS.get(value, str(value))
