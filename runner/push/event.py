"""The event of a push, as every way in sends it.

{"id", "occurred", "event": "axolotl.config.pushed",
 "resource": {"prefect.resource.id": "github.repository.<owner>/<repo>"},
 "payload": {"repository", "ref", "before", "after", "files": [{"path", "blob"}] or null}}

`blob` is git's hash of the content. `files` null leaves it to `dispatch` to look, which looks again
anyway. The id follows from the push, so a push that is told twice, by whomever, is one event.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from runner.push.changes import Push
from runner.push.pushed import Pushed

EVENT = "axolotl.config.pushed"
MOST_FILES = 1000


def push_event(
    repository: str, push: Push, files: Sequence[Pushed] | None, *, occurred: datetime | None = None
) -> dict[str, Any]:
    """The event; more than MOST_FILES files are not listed."""
    listed = None
    if files is not None and len(files) <= MOST_FILES:
        listed = [{"path": file.path, "blob": file.blob} for file in files]
    return {
        "id": event_id(repository, push),
        "occurred": (occurred or datetime.now(UTC)).isoformat(),
        "event": EVENT,
        "resource": {"prefect.resource.id": resource(repository)},
        "payload": {
            "repository": repository,
            "ref": push.ref,
            "before": push.before,
            "after": push.after,
            "files": listed,
        },
    }


def resource(repository: str) -> str:
    """The id of the event's resource."""
    return f"github.repository.{repository}"


def event_id(repository: str, push: Push) -> str:
    """The id of the one event that tells this push."""
    name = f"{resource(repository)}@{push.ref}:{push.before}:{push.after}"
    return str(uuid5(NAMESPACE_URL, name))
