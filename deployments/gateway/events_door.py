"""The push event: what a pusher may tell, and the event that it becomes.

The body of POST /push is one event: {"event": "axolotl.config.pushed", "resource":
{"prefect.resource.id": "github.repository.<owner>/<repo>"}, "payload": {ref, before, after,
files: [{path, content}]}} with an optional `id` and `occurred`. The repository is the token's,
whatever the body says; without an id it is made of repository and commit, so a push that is told
twice is the same event.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from deployments.gateway.rules import NotAllowed, Refused, fields
from runner.tokens import Token

EVENT = "axolotl.config.pushed"
LARGEST_PAYLOAD = 64 * 1024
MOST_FILES = 100
PAYLOAD = {"ref", "before", "after", "files"}

_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


def push_event(token: Token, body: object, now: float) -> dict[str, Any] | Refused:
    """The event to send upstream, or why this is none of the pusher's; `now` in unix s."""
    if token.kind != "push":
        return Refused("this token is a pod's")
    try:
        return _event(token, fields(body), now)
    except NotAllowed as no:
        return Refused(str(no))


def _event(token: Token, told: Mapping[str, Any], now: float) -> dict[str, Any]:
    name = f"github.repository.{token.repository}"
    if set(told) - {"id", "occurred", "event", "resource", "payload"}:
        raise NotAllowed("an event has id, occurred, event, resource and payload here")
    if told.get("event") != EVENT:
        raise NotAllowed(f"only {EVENT}")
    if dict(fields(told.get("resource"))) != {"prefect.resource.id": name}:
        raise NotAllowed(f"only {name}")
    payload = _payload(fields(told.get("payload")))
    return {
        "id": _id(told.get("id"), f"{name}@{payload['after']}"),
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
    if not _is_commit(payload.get("after")):
        raise NotAllowed("`after` is the pushed commit, 40 hex digits")
    before, ref = payload.get("before"), payload.get("ref")
    if not (before is None or _is_commit(before)) or not (ref is None or isinstance(ref, str)):
        raise NotAllowed("`before` is a commit and `ref` a text")
    files = payload.get("files")
    if not isinstance(files, list) or not 0 < len(files) <= MOST_FILES:
        raise NotAllowed(f"`files` is a list of 1 to {MOST_FILES} task files")
    return {**payload, "files": [_file(fields(file)) for file in files]}


def _file(file: Mapping[str, Any]) -> dict[str, Any]:
    path, content = file.get("path"), file.get("content")
    if set(file) - {"path", "content"} or not isinstance(path, str):
        raise NotAllowed("a file has `path` and `content`")
    parts = PurePosixPath(path).parts
    if not parts or parts[0] == "/" or ".." in parts or not path.endswith((".yml", ".yaml")):
        raise NotAllowed("a file's path is that of a YAML file in the repository")
    if not (content is None or isinstance(content, str)):
        raise NotAllowed("a file's content is a text")
    return dict(file)


def _is_commit(text: object) -> bool:
    return isinstance(text, str) and _COMMIT.fullmatch(text) is not None


def _id(told: object, otherwise: str) -> str:
    try:
        return str(uuid5(NAMESPACE_URL, otherwise) if told is None else UUID(str(told)))
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
