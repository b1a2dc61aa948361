"""Vast's switches; the meaning of each is in the docstring of the package."""

from __future__ import annotations

from typing import Any

from tests.emulators import faults

DEFAULTS: dict[str, Any] = {
    # lifecycle
    "provision_seconds": 0.1,
    "created_seconds": 0.05,
    "image_pull_seconds": 0.1,
    "restart_seconds": 0.2,
    "grace_seconds": 0.0,
    "stuck": None,
    "stuck_times": 0,
    "pull_error": 0,
    "start_scheduling": 0,
    "telemetry_null": False,
    "telemetry": {"gpu": 90.0, "cpu": 40.0, "memory": 12.0},
    "image_gb": 0.0,
    "keep_folders": False,
    # visibility
    "visibility_lag": 0.0,
    "destroy_lag": 0.0,
    "missing_404": False,
    "missing_destroy_200": False,
    "no_start_date": False,
    "page_size": 25,
    # create
    "create_status": None,
    "create_5xx_after": 0,
    "create_5xx": 502,
    "create_timeout_after": 0,
    "create_timeout_hold": 0.0,
    "create_fails_with_contract": 0,
    "create_false": 0,
    "create_ghost": 0,
    "gone_status": 400,
    "low_bid": "leaves",
    "ignore_cancel_unavail": False,
    "no_credit": 0,
    "templates": {},
    # the market
    "machines": {},
    "market_price": {},
    "snatch": 0,
    "snatch_probability": 0.0,
    # any call
    "status": None,
    "list_status": None,
    "destroy_status": None,
    "gaps": True,
    "limit_form": "text",
    "limit_retry_after": None,
    "search_quota": None,
    "two_factor": False,
    "search_key_404": False,
    "scoped_key": True,
    "logs_404": 1,
}

ACTIONS = (
    "balance",
    "outbid",
    "rival_leaves",
    "take",
    "kill_pod",
    "stop_pod",
    "host_lost",
    "set_status",
    "restart_container",
    "traffic",
)


class Faults(faults.Faults):
    """The switches of one Vast."""

    def __init__(self) -> None:
        super().__init__(DEFAULTS, ACTIONS)

    def take_search(self) -> bool:
        """Whether `search_quota` has a search left for today."""
        with self._lock:
            left = self["search_quota"]
            if left is None:
                return True
            self._set["search_quota"] = max(0, left - 1)
            return bool(left > 0)
