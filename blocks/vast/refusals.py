"""What Vast's refusals mean: its answers as errors of `runner.errors`, named for what to do.

    401, 403, search 404    KeyRefused    never asked again
    no credit, in any words OutOfFunds    never asked again
    offer gone, bid too low NoCapacity    the next offer
    429                     TryAgain      after a pause; NoCapacity when the day's searches are used
    other 4xx               ConfigError   of what was asked for; of a look or a destroy TryAgain
    5xx                     TryAgain

An offer that is gone comes as 400, 404 or 410, and a refusal may come with HTTP 200 and
`success: false`. So the words decide before the status does. What was sent is never part of a
message: it holds secrets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from runner.errors import ConfigError, KeyRefused, NoCapacity, OutOfFunds, RunnerError, TryAgain

DETAIL_LENGTH = 300
GONE_WORDS = ("no_such_ask", "is not available", "no longer available", "not your own")
BID_WORDS = ("invalid_price", "bid below", "minimum bid", "bid too low")
MONEY_WORDS = (
    "lacks credit",
    "insufficient credit",
    "insufficient_credit",
    "missing_billing",
    "spend_rate_limit",
)
MISSING_WORDS = ("no_such_instance", "with that id does not exist", "instance not found")
# Calls whose content comes from the task file.
ASKED_FOR = ("create", "search")
# Seconds to wait after a 429; a create call that comes too early is made to wait the longest.
PAUSE, CREATE_PAUSE = 3.0, 12.0

Json = dict[str, Any]


def refusal(what: str, status: int, body: object, headers: Mapping[str, str] = {}) -> RunnerError:
    """The error of an answer that is no success; `what` was asked for: create, search, …"""
    said = detail(body)
    words = said.lower()
    if status == 429:
        if "search_quota_exceeded" in words:
            return NoCapacity("Vast takes no more searches of this account until midnight UTC")
        return TryAgain("Vast asks for a pause (429)", after=_pause(what, headers))
    if any(word in words for word in MONEY_WORDS) or status in (402, 411):
        return OutOfFunds(f"Vast refuses for want of money: {said}")
    if any(word in words for word in (*GONE_WORDS, *BID_WORDS)):
        return NoCapacity(said)
    if status in (401, 403) or "auth_error" in words or (what == "search" and status == 404):
        return KeyRefused(
            f"Vast refuses the API key ({status}: {said}); set VAST_API_KEY to one that may search "
            "for offers and create, see and destroy instances"
        )
    if what in ASKED_FOR and 400 <= status < 500 and "server_error" not in words:
        return ConfigError(f"Vast refuses what was asked for ({status}): {said}")
    return TryAgain(f"Vast answers {status}: {said}")


def is_missing(status: int, body: object) -> bool:
    """Whether the refusal of a call for one instance says that it is not there."""
    words = detail(body).lower()
    if status in (401, 403, 429) or status >= 500:
        return False
    return status == 404 or any(word in words for word in MISSING_WORDS)


def detail(body: object) -> str:
    """The reason in Vast's words, on one line: error and msg, a text, or `detail`."""
    if isinstance(body, Mapping):
        words = [str(body[key]) for key in ("error", "msg", "detail") if body.get(key)]
    else:
        words = [re.sub(r"<[^>]*>", " ", str(body or ""))]
    return " ".join(": ".join(words).split())[:DETAIL_LENGTH] or "no explanation"


def left_behind(body: object) -> str | None:
    """The id of the instance that a refused create call made nevertheless."""
    contract = body.get("new_contract") if isinstance(body, Mapping) else None
    return str(contract) if contract else None


def _pause(what: str, headers: Mapping[str, str]) -> float:
    try:
        return max(0.0, float(headers["Retry-After"]))
    except (KeyError, ValueError):
        return CREATE_PAUSE if what == "create" else PAUSE
