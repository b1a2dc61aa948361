"""The push event: what a pusher may tell, and the event that it becomes.

The body of POST /push is one event: {"event": "axolotl.config.pushed", "resource":
{"prefect.resource.id": "github.repository.<owner>/<repo>"}, "payload": {ref, before, after,
files: [{path, blob}] or null}} with an optional `id` and `occurred`. The repository is the token's,
whatever the body says; the id is made anew from the push, so one that is told twice is one event.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

from deployments.gateway.rules import NotAllowed, Refused, fields
from runner.push.changes import Push
from runner.push.event import EVENT, MOST_FILES, event_id, resource
from runner.push.git import COMMIT
from runner.tokens import Token

LARGEST_PAYLOAD = 256 * 1024
PAYLOAD = {"repository", "ref", "before", "after", "files"}


def push_event(token: Token, body: object, now: float) -> dict[str, Any] | Refused:
    """The event to send upstream, or why this is none of the pusher's; `now` in unix s."""
    if token.kind != "push":
        return Refused("this token is a pod's")
    try:
        return _event(token, fields(body), now)
    except NotAllowed as no:
        return Refused(str(no))


def _event(token: Token, told: Mapping[str, Any], now: float) -> dict[str, Any]:
    name = resource(token.repository)
    if set(told) - {"id", "occurred", "event", "resource", "payload"}:
        raise NotAllowed("an event has id, occurred, event, resource and payload here")
    if told.get("event") != EVENT:
        raise NotAllowed(f"only {EVENT}")
    if dict(fields(told.get("resource"))) != {"prefect.resource.id": name}:
        raise NotAllowed(f"only {name}")
    payload = _payload(fields(told.get("payload")))
    if payload.get("repository", token.repository) != token.repository:
        raise NotAllowed(f"only {token.repository}")
    _check_id(told.get("id"))
    push = Push(payload["ref"], payload["before"], payload["after"])
    return {
        "id": event_id(token.repository, push),
        "occurred": _occurred(told.get("occurred"), now),
        "event": EVENT,
        "resource": {"prefect.resource.id": name, "prefect.resource.name": token.repository},
        "related": [],
        "payload": {**payload, "repository": token.repository},
    }


def _payload(payload: Mapping[str, Any]) -> dict[str, Any]:
    if set(payload) - PAYLOAD:
        raise NotAllowed(f"the payload has {', '.join(sorted(PAYLOAD))}")
    if len(json.dumps(payload, ensure_ascii=False).encode()) > LARGEST_PAYLOAD:
        raise NotAllowed(f"the payload has at most {LARGEST_PAYLOAD} bytes")
    for name in ("before", "after"):
        if not _is_commit(payload.get(name)):
            raise NotAllowed(f"`{name}` is a commit, 40 hex digits")
    ref = payload.get("ref")
    if not isinstance(ref, str) or not re.fullmatch(r"refs/[!-~\u00a0-\U0010ffff]{1,250}", ref):
        raise NotAllowed("`ref` is the full name of a branch")
    files = payload.get("files")
    if files is None:
        return {**payload, "files": None}
    if not isinstance(files, list) or not 0 < len(files) <= MOST_FILES:
        raise NotAllowed(f"`files` is a list of 1 to {MOST_FILES} task files, or null")
    return {**payload, "files": [_file(fields(file)) for file in files]}


def _file(file: Mapping[str, Any]) -> dict[str, Any]:
    path = file.get("path")
    if set(file) != {"path", "blob"} or not isinstance(path, str):
        raise NotAllowed("a file has `path` and `blob`")
    parts = PurePosixPath(path).parts
    if not parts or parts[0] == "/" or ".." in parts or not path.endswith((".yml", ".yaml")):
        raise NotAllowed("a file's path is that of a YAML file in the repository")
    if not _is_commit(file["blob"]):
        raise NotAllowed("a file's blob is git's hash of its content")
    return dict(file)


def _is_commit(text: object) -> bool:
    return isinstance(text, str) and COMMIT.fullmatch(text) is not None


def _check_id(told: object) -> None:
    try:
        UUID(str(told)) if told is not None else None
    except ValueError:
        raise NotAllowed("the event's id is no UUID") from None


def _occurred(told: object, now: float) -> str:
    """When it happened, as RFC 3339 with a zone; now unless the pusher says."""
    if told is None:
        return datetime.fromtimestamp(now, UTC).isoformat()
    try:
        occurred = datetime.fromisoformat(str(told))
    except ValueError:
        raise NotAllowed("`occurred` is no time of RFC 3339") from None
    if occurred.tzinfo is None:
        raise NotAllowed("`occurred` names no time zone")
    return occurred.isoformat()
