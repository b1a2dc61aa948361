"""In front of the account: keys, switches, limits, the contract."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.emulators.calls import Answer, Call, Dropped
from tests.emulators.vast import rest
from tests.emulators.vast.limits import kind_of
from tests.emulators.vast.problems import Refused

if TYPE_CHECKING:
    from tests.emulators.vast.emulator import Emulator

_PREFIX = re.compile(r"/api/v[01]/")
_OWN = re.compile(r"instances/(\d+)")


def answer(emulator: Emulator, call: Call) -> Answer:
    """The answer to a call, held against the contract; may raise Dropped."""
    if call.path.startswith("/result/"):  # of another service, which asks for no key
        return rest.result(emulator.account, call.path.removeprefix("/result/").strip("/"))
    try:
        found = _answer(emulator, call)
    except Dropped:
        raise
    except Refused as refused:
        if refused.rule:
            emulator.violation("rule", call, [refused.msg])
        found = refused.answer
    except Exception as error:  # a bug of ours must not look like a fault that a test asked for
        emulator.violation("emulator", call, [repr(error)])
        return Answer(500, f"a bug of the emulator: {error!r}", "text/plain")
    errors = emulator.contract.response_errors(call.method, call.path, found.status, found.body)
    if errors:
        emulator.violation("response", call, errors)
        return Answer(500, f"a bug of the emulator: {errors}", "text/plain")
    return found


def _answer(emulator: Emulator, call: Call) -> Answer:
    path = _PREFIX.sub("", call.path).strip("/")
    if not _PREFIX.match(call.path):
        raise Refused(404, "not_found", "no such page")
    kind = kind_of(call.method, path)
    named = [f"{kind}_status"] if kind in ("list", "destroy") else []
    for name in ("status", *named):
        if fault := emulator.faults.take_status(name, call.method, call.path):
            time.sleep(fault.hang)
            if fault.status:
                raise Refused(fault.status, "emulated", fault.detail, retry_after=fault.retry_after)
    call = _signed(emulator, call, kind)
    emulator.limits.check(call, path)
    _check_rights(emulator, call, path)
    errors = emulator.contract.request_errors(call.method, call.path, call.query, call.body)
    if errors:
        emulator.violation("request", call, errors)
        raise Refused(400, "invalid_args", f"error 400/3467: Invalid args: {'; '.join(errors)}")
    return rest.route(emulator.account, call, path, emulator.url)


def _signed(emulator: Emulator, call: Call, kind: str | None) -> Call:
    """The call with its caller; Refused 401."""
    key = call.headers.get("authorization", "").removeprefix("Bearer ")
    caller = emulator.account.owner_of(key or call.query.get("api_key", ""))
    if caller is None:
        status = 404 if kind == "search" and emulator.faults["search_key_404"] else 401
        raise Refused(status, "auth_error", "Invalid user key")
    if caller == "account" and emulator.faults["two_factor"]:
        raise Refused(401, "auth_error", "Two Factor Authentication required")
    return replace(call, caller=caller)


def _check_rights(emulator: Emulator, call: Call, path: str) -> None:
    """An instance's own key may start, stop and destroy it, and nothing else."""
    if call.caller == "account":
        return
    own = _OWN.fullmatch(path)
    changes = call.method == "DELETE" or (
        call.method == "PUT" and isinstance(call.body, dict) and set(call.body) == {"state"}
    )
    may = own is not None and own[1] == call.caller and changes
    if not may or not emulator.faults["scoped_key"]:
        raise Refused(403, "not_authorized", "The key lacks the permission")
