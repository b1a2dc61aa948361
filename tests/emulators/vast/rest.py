"""The routes. Each takes a Call of someone who may, and returns an Answer."""

from __future__ import annotations

import base64
import json
import re
import secrets
from collections.abc import Callable
from typing import Any

from tests.emulators.calls import Answer, Call
from tests.emulators.vast.account import Account
from tests.emulators.vast.problems import Refused, invalid, no_such_instance
from tests.emulators.vast.queries import APART, NOT_FILTERABLE, chosen, ordered

DEFAULT_LIMIT = 64
LONGEST_LINE = 500
OK = {"success": True}


def route(account: Account, call: Call, path: str, origin: str) -> Answer:
    """The answer of the right method; `path` is without prefix and slashes at its ends."""
    allowed = []
    for method, pattern, handler in _ROUTES:
        if found := pattern.fullmatch(path):
            if method == call.method:
                return handler(account, call, origin, *map(int, found.groups()))
            allowed.append(method)
    raise Refused(405 if allowed else 404, "not_found", f"{call.method} {path} is not covered")


def result(account: Account, token: str) -> Answer:
    """What an upload of logs has come to: 404 at first."""
    left, text = account.uploads.get(token, (1, ""))
    account.uploads[token] = (left - 1, text)
    if left > 0:
        return Answer(404, "NoSuchKey", "text/plain")
    return Answer(200, text, "text/plain")


def _search(account: Account, call: Call, origin: str) -> Answer:
    return _offers(account, dict(call.body or {}))


def _search_new(account: Account, call: Call, origin: str) -> Answer:
    return _offers(account, dict((call.body or {}).get("q") or {}))


def _offers(account: Account, query: dict[str, Any]) -> Answer:
    with account.lock:
        if not account.faults.take_search():
            raise Refused(429, "search_quota_exceeded", "Daily search quota exceeded")
        kind = query.get("type", "on-demand")
        storage = float(query.get("allocated_storage", 8.0))
        now = account.clock.now()
        asks = account.market.asks(account.held())
        rows = [account.market.row(ask, kind, storage, now) for ask in asks]
    filters = {name: value for name, value in query.items() if name not in APART}
    found = ordered(chosen(rows, filters), query.get("order") or [["score", "desc"]])
    return Answer(200, {"offers": found[: int(query.get("limit") or DEFAULT_LIMIT)]})


def _create(account: Account, call: Call, origin: str, ask: int) -> Answer:
    one = account.create(ask, call.body or {})
    return Answer(200, {**OK, "new_contract": one.id, "instance_api_key": one.key})


def _list(account: Account, call: Call, origin: str) -> Answer:
    rows = [account.view(one) for one in account.visible()]
    if call.path.startswith("/api/v0"):  # deprecated
        return Answer(200, {"instances": rows})
    filters = _json(call, "select_filters", {})
    if bad := [name for name in filters if name in NOT_FILTERABLE]:
        msg = f"Error in query parameters: {bad[0]} is not a valid search key"
        raise Refused(400, "invalid_request", msg, rule=True)
    rows = chosen(rows, filters)
    order = _json(call, "order_by", [])
    rows = ordered(rows, [[each["col"], each.get("dir", "asc")] for each in order])
    most = account.faults["page_size"]
    size = int(call.query.get("limit") or most)
    size = 5 if size <= 0 else min(size, most)
    start = _offset(call.query.get("after_token"))
    page = rows[start : start + size]
    more = start + size < len(rows)
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["label"] or ""] = counts.get(row["label"] or "", 0) + 1
    return Answer(
        200,
        {
            **OK,
            "instances": page,
            "instances_found": len(page),
            "total_instances": len(rows),
            "label_counts": counts,
            "next_token": _token(start + size) if more else None,
        },
    )


def _get(account: Account, call: Call, origin: str, number: int) -> Answer:
    found = next((one for one in account.visible() if one.id == number), None)
    if found is None and account.faults["missing_404"]:
        raise no_such_instance()
    return Answer(200, {"instances": None if found is None else account.view(found)})


def _manage(account: Account, call: Call, origin: str, number: int) -> Answer:
    body = call.body or {}
    if "label" in body:
        account.label(number, body["label"])
        return Answer(200, {**OK, "msg": f"label for {number} set"})
    if body.get("state") not in ("running", "stopped"):
        raise invalid("state or label expected")
    account.set_state(number, body["state"], call.caller or "")
    return Answer(200, OK)


def _destroy(account: Account, call: Call, origin: str, number: int) -> Answer:
    try:
        account.destroy(number, call.caller or "account")
    except Refused as missing:
        if account.faults["missing_destroy_200"]:
            missing.status = 200
        raise
    return Answer(200, OK)


def _bid(account: Account, call: Call, origin: str, number: int) -> Answer:
    account.change_bid(number, float((call.body or {}).get("price") or 0))
    return Answer(200, OK)


def _reboot(account: Account, call: Call, origin: str, number: int) -> Answer:
    account.do("restart_container", number)
    return Answer(200, OK)


def _ask_logs(account: Account, call: Call, origin: str, number: int) -> Answer:
    found = next((one for one in account.visible() if one.id == number), None)
    if found is None:
        raise Refused(404, "invalid_id", "Invalid instance id.")
    body = call.body or {}
    lines = found.log.texts("system" if body.get("daemon_logs") == "true" else "container")
    lines = [line[:LONGEST_LINE] for line in lines if body.get("filter", "") in line]
    token = secrets.token_hex(8)
    text = "\n".join(lines[-int(body.get("tail") or 1000) :])
    account.uploads[token] = (account.faults["logs_404"], text)
    return Answer(200, {**OK, "result_url": f"{origin}/result/{token}", "msg": ""})


def _user(account: Account, call: Call, origin: str) -> Answer:
    user = {"id": 1, "key_id": 2, "email": "me@example.com", "ssh_key": "", "sid": "s"}
    left = float(account.balance())
    return Answer(200, {**user, "username": "me", "balance": 0.0, "credit": left})


def _charges(account: Account, call: Call, origin: str) -> Answer:
    days = _json(call, "select_filters", {}).get("day", {})
    now = account.clock.now()
    with account.lock:
        found = [*account.ended, *account.instances.values()]
        costs = account.costs()
    rows = [
        {
            "start": int(one.created),
            "end": int(one.ended or now),
            "type": "instance",
            "source": f"instance-{one.id}",
            "description": f"Instance {one.id} Charges",
            "amount": round(float(costs[one.id]), 3),
            "metadata": {"label": one.order.label} if one.order.label else {},
        }
        for one in found
        if days.get("gte", 0) <= one.created <= days.get("lte", now)
    ]
    size = min(int(call.query.get("limit") or 100), 500)
    start = _offset(call.query.get("after_token"))
    more = start + size < len(rows)
    page = rows[start : start + size]
    token = _token(start + size) if more else None
    return Answer(
        200, {**OK, "count": len(page), "total": len(rows), "next_token": token, "results": page}
    )


def _json(call: Call, name: str, otherwise: Any) -> Any:
    """A query argument, which is JSON."""
    try:
        return json.loads(call.query[name]) if name in call.query else otherwise
    except ValueError:
        raise Refused(400, "invalid_request", f"{name} is not JSON", rule=True) from None


def _token(start: int) -> str:
    return base64.urlsafe_b64encode(json.dumps({"after": start}).encode()).decode()


def _offset(token: str | None) -> int:
    if not token:
        return 0
    try:
        return int(json.loads(base64.urlsafe_b64decode(token))["after"])
    except (ValueError, KeyError):
        raise Refused(400, "invalid_token", "invalid after_token", rule=True) from None


_ROUTES: list[tuple[str, re.Pattern[str], Callable[..., Answer]]] = [
    (method, re.compile(path), handler)
    for method, path, handler in (
        ("POST", "bundles", _search),
        ("PUT", "search/asks", _search_new),
        ("PUT", r"asks/(\d+)", _create),
        ("GET", "instances", _list),
        ("GET", r"instances/(\d+)", _get),
        ("PUT", r"instances/(\d+)", _manage),
        ("DELETE", r"instances/(\d+)", _destroy),
        ("PUT", r"instances/bid_price/(\d+)", _bid),
        ("PUT", r"instances/re(?:boot|cycle)/(\d+)", _reboot),
        ("PUT", r"instances/request_logs/(\d+)", _ask_logs),
        ("GET", "users/current", _user),
        ("GET", "charges", _charges),
    )
]
