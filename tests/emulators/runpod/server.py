"""In front of the account: keys, switches, the contract."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from tests.emulators.calls import PROBLEM, Answer, Call, Dropped
from tests.emulators.runpod import graphql, rest
from tests.emulators.runpod.problems import Problem

if TYPE_CHECKING:
    from tests.emulators.runpod.emulator import Emulator

LIMITS = {
    "RateLimit": '"minute";r=175;t=30, "hour";r=7190;t=1800',
    "RateLimit-Policy": '"minute";q=176;w=60, "hour";q=7193;w=3600',
}
_OWN = re.compile(r"/v2/pods/([^/]+)")


def answer(emulator: Emulator, call: Call) -> Answer:
    """The answer to a call, held against the contract; may raise Dropped."""
    agent = call.headers.get("user-agent", "")
    if emulator.faults["cloudflare"] and agent.startswith("Python-urllib"):
        # Of the edge in front of the API, so not in the API's contract.
        return Answer(403, "error code: 1010", "text/plain")
    try:
        found = _answer(emulator, call)
    except Dropped:
        raise
    except Problem as problem:
        if problem.rule:
            emulator.violation("rule", call, problem.errors or [problem.detail])
        found = _problem_answer(problem)
    except Exception as error:  # a bug of ours must not look like a fault that a test asked for
        emulator.violation("emulator", call, [repr(error)])
        found = _problem_answer(Problem(500, f"a bug of the emulator: {error!r}"))
    errors = emulator.contract.response_errors(
        call.method, call.path, found.status, found.media, found.body
    )
    if errors:
        emulator.violation("response", call, errors)
        return _problem_answer(Problem(500, "a bug of the emulator", errors))
    return found


def _answer(emulator: Emulator, call: Call) -> Answer:
    faults = emulator.faults
    for name in ("status", *_named(call)):
        if fault := faults.take_status(name, call.method, call.path):
            time.sleep(fault.hang)
            if fault.status:
                raise Problem(fault.status, fault.detail, retry_after=fault.retry_after)
    call = _signed(emulator, call)
    if call.path == "/graphql":
        if gone := faults["graphql_410"]:
            body = {"message": "gone"} if gone == "json" else "Gone"
            return Answer(410, body, "application/json" if gone == "json" else "text/plain")
        return graphql.answer(emulator.account, call)
    _check_rights(emulator, call)
    media = call.headers.get("content-type", "")
    errors = emulator.contract.request_errors(call.method, call.path, call.query, media, call.raw)
    if errors:
        emulator.violation("request", call, errors)
        raise Problem(422, "the request is not valid", errors)
    return rest.route(emulator.account, call)


def _named(call: Call) -> list[str]:
    """The switches of their own that this call has."""
    if (call.method, call.path) == ("GET", "/v2/pods"):
        return ["list_status"]
    ends = call.method == "DELETE" and _OWN.fullmatch(call.path)
    if ends or (isinstance(call.body, dict) and call.body.get("action") == "terminate"):
        return ["delete_status"]
    return []


def _signed(emulator: Emulator, call: Call) -> Call:
    """The call with its caller; Problem 401. A catalog of GraphQL needs no key."""
    scheme, _, key = call.headers.get("authorization", "").partition(" ")
    if call.path == "/graphql" and not key:
        key = call.query.get("api_key", "")
        if not key:
            return call
    elif scheme != "Bearer" or not key:
        raise Problem(401, "missing bearer token")
    caller = emulator.account.owner_of(key)
    if caller is None:
        raise Problem(401, "invalid API key")
    return Call(call.method, call.path, call.query, call.headers, call.raw, call.body, caller)


def _check_rights(emulator: Emulator, call: Call) -> None:
    """Problem 403 for a key of too little scope; a pod's key may see and delete its own pod."""
    scope = emulator.faults["key_scope_403"]
    if call.caller == "account":
        what = f"{call.method} {call.path}"
        if scope is True or (isinstance(scope, list) and any(re.search(p, what) for p in scope)):
            raise Problem(403, "access denied")
        return
    own = _OWN.fullmatch(call.path)
    may = own is not None and own[1] == call.caller and call.method in ("GET", "DELETE")
    if not may or not emulator.faults["scoped_key_v2"]:
        raise Problem(403, "access denied")


def _problem_answer(problem: Problem) -> Answer:
    headers = {}
    if problem.retry_after is not None:
        headers["Retry-After"] = f"{problem.retry_after:g}"
    return Answer(problem.status, problem.body, PROBLEM, headers=headers)
