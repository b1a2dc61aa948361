"""What a pod may ask of the Prefect API: a list of routes, each narrowed to the pod's own run.

Pure functions. Where the question names a thing by its id, the verdict says which look-ups have to
prove that it is the pod's own; `ownership` does these. Whatever is not on the list is refused.
Requests go upstream as `Allowed.body` written anew, so nothing is read differently there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from runner.tokens import POOL, Token

Kind = Literal["flow_run", "task_run", "deployment", "flow", "work_queue", "artifact"]

# Labels of the run's own flow run that its pod may read: tasks/lease.py writes them.
LEASE = ("axr.lease", "axr.ends_at", "axr.spent")
PATCHED = {"name", "tags", "infrastructure_pid", "empirical_policy", "flow_version"}
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True)
class Own:
    """A thing that must be the pod's own."""

    kind: Kind
    id: str


@dataclass(frozen=True)
class Refused:
    """Not on the list; the reason is for the pod's log."""

    reason: str


@dataclass(frozen=True)
class Allowed:
    """On the list, once each of `own` is proven; `answer` says what is done with the answer."""

    own: tuple[Own, ...] = ()
    body: Any = None
    answer: Literal["as it is", "own runs only", "a new artifact", "the lease"] = "as it is"


class NotAllowed(Exception):
    """Ends the judging of a request or frame with the reason."""


def is_plain(raw_path: bytes) -> bool:
    """True for a path that every server reads alike: no escapes, no dot segments, no odd signs."""
    path = raw_path.decode("latin-1")
    if not re.fullmatch(r"(/[A-Za-z0-9_.~-]*)+", path) or "//" in path:
        return False
    return not any(part in (".", "..") for part in path.split("/"))


def judge(token: Token, method: str, path: str, query: str, body: Any) -> Allowed | Refused:
    """The verdict on one request; `path` is what follows /api and is_plain, `body` the parsed JSON.

    Args:
        token: whose request it is.
        method: in capitals.
        path: such as /flow_runs/filter.
        query: as sent, without the question mark.
        body: None for an empty one.
    """
    if token.kind != "pod":
        return Refused("this token can only report pushes")
    if query and path != "/csrf-token":
        return Refused("no query here")
    try:
        return _judge(token, method, path.removeprefix("/").split("/"), body)
    except NotAllowed as no:
        return Refused(str(no))


def own(kind: Kind, text: object) -> Own:
    """The thing with this id; NotAllowed when it is no id."""
    try:
        return Own(kind, str(UUID(str(text))))
    except ValueError:
        raise NotAllowed(f"no id of a {kind.replace('_', ' ')}") from None


def fields(body: object) -> Mapping[str, Any]:
    """The body as an object; NotAllowed when it is none."""
    if not isinstance(body, dict):
        raise NotAllowed("the body must be an object")
    return body


def _judge(token: Token, method: str, parts: list[str], body: Any) -> Allowed:
    match method, parts:
        case "GET", ["health"] | ["csrf-token"] | ["admin", "version" | "storage"]:
            return Allowed()
        case "GET", ["flow_runs", text] if text == token.run:
            return Allowed(answer="the lease")
        case "GET", ["flow_runs" | "deployments" | "flows" | "work_queues" as kind, text]:
            return Allowed((_in_path(kind, text),))
        case "POST", ["flow_runs", "filter"]:
            return Allowed(body=narrow(token, fields(body or {})), answer="own runs only")
        case "PATCH", ["flow_runs", text]:
            return Allowed((_in_path("flow_runs", text),), _patch(token, fields(body)))
        case "PATCH", ["flow_runs", text, "labels"]:
            return Allowed((_in_path("flow_runs", text),), fields(body))
        case "POST", ["flow_runs", text, "set_state"]:
            _only(fields(body), {"state", "force"})
            return Allowed((_in_path("flow_runs", text),), body)
        case "POST", ["logs", ""]:
            return Allowed(_of_logs(body), body)
        case "POST", ["artifacts", ""]:
            return Allowed(_of_artifact(token, fields(body)), body, "a new artifact")
        case "PATCH", ["artifacts", text]:
            _only(fields(body), {"data", "description", "metadata_"})
            return Allowed((_in_path("artifacts", text),), body)
        case _, ["work_pools", name, *rest] if name == POOL:
            return _of_pool(token, method, rest, body)
    raise NotAllowed("not open to pods")


def _of_pool(token: Token, method: str, rest: list[str], body: Any) -> Allowed:
    match method, rest:
        case "GET", []:
            return Allowed()
        case "POST", ["get_scheduled_flow_runs"]:
            # Without names the server gives the runs of all queues.
            if fields(body).get("work_queue_names") != [token.queue]:
                raise NotAllowed("only the run's own queue")
            return Allowed(body=body)
        case "POST", ["queues", "filter"]:
            if _only_names(fields(body).get("work_queues")) != [token.queue]:
                raise NotAllowed("only the run's own queue")
            return Allowed(body=body)
        case "POST", ["workers", "heartbeat"]:
            if fields(body).get("name") != token.worker:
                raise NotAllowed("only the pod's own worker")
            return Allowed(body=body)
    raise NotAllowed("not open to pods")


def the_lease(flow_run: Mapping[str, Any]) -> dict[str, Any]:
    """Of a run's own flow run what its pod's guard needs, in the form of the API: whether it has
    ended, and until when it is paid for. The rest (parameters, other labels) is not the pod's.
    """
    labels = flow_run.get("labels") or {}
    return {
        "id": flow_run.get("id"),
        "state_type": flow_run.get("state_type"),
        "labels": {name: labels[name] for name in LEASE if name in labels},
    }


def narrow(token: Token, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The same question about flow runs, of the own queue only.

    A filter of the pod on queues or pools is taken over only where it can't widen the question.
    """
    for name, mine in (("work_pool_queues", token.queue), ("work_pools", POOL)):
        if asked.get(name) is not None and _only_names(asked[name]) != [mine]:
            raise NotAllowed("only the run's own queue")
    return {
        **asked,
        "work_pool_queues": {"name": {"any_": [token.queue]}},
        "work_pools": {"name": {"any_": [POOL]}},
    }


def _only_names(asked: object) -> object:
    """The names of a filter that asks for names and nothing else; None for any other filter."""
    if not isinstance(asked, dict) or not isinstance(asked.get("name"), dict):
        return None
    # The client writes out the fields that it leaves empty.
    more = {name for name, value in asked.items() if value is not None} - {"name", "operator"}
    more |= {name for name, value in asked["name"].items() if value is not None} - {"any_"}
    return None if more else asked["name"].get("any_")


def _patch(token: Token, body: Mapping[str, Any]) -> Mapping[str, Any]:
    _only(body, PATCHED)
    # Parents find their children by this tag: another run's would read this pod's facts.
    tags = body.get("tags") or []
    if any(str(tag).startswith("run:") and tag != f"run:{token.run}" for tag in tags):
        raise NotAllowed("the tag of another run")
    return body


def _of_logs(body: object) -> tuple[Own, ...]:
    if not isinstance(body, list):
        raise NotAllowed("the body must be a list")
    return _distinct(
        thing
        for entry in map(fields, body)
        for thing in (own("flow_run", entry.get("flow_run_id")), *_task_run(entry))
    )


def _of_artifact(token: Token, body: Mapping[str, Any]) -> tuple[Own, ...]:
    """Of the own run by its key, or of an own flow run; a key of another run is in neither."""
    key, flow_run = body.get("key"), body.get("flow_run_id")
    if key is not None and not str(key).endswith(f"-{token.run}"):
        raise NotAllowed("an artifact's key ends with the id of the run")
    if key is None and flow_run is None:
        raise NotAllowed("an artifact of no run")
    attached = () if flow_run is None else (own("flow_run", flow_run),)
    return (*attached, *_task_run(body))


def _task_run(body: Mapping[str, Any]) -> tuple[Own, ...]:
    found = body.get("task_run_id")
    return () if found is None else (own("task_run", found),)


def _in_path(collection: str, text: str) -> Own:
    """The thing of a path; ids in a path have one spelling only."""
    if not _UUID.fullmatch(text):
        raise NotAllowed("not open to pods")
    kinds: dict[str, Kind] = {
        "flow_runs": "flow_run",
        "deployments": "deployment",
        "flows": "flow",
        "work_queues": "work_queue",
        "artifacts": "artifact",
    }
    return Own(kinds[collection], text)


def _only(body: Mapping[str, Any], allowed: set[str]) -> None:
    more = sorted(set(body) - allowed)
    if more:
        raise NotAllowed(f"a pod may not set {', '.join(map(repr, more))[:100]}")


def _distinct(things: Iterable[Own]) -> tuple[Own, ...]:
    return tuple(dict.fromkeys(things))
