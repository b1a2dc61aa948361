"""GitHub's own webhook: POST /github, signed with the secret that both sides know.

A delivery counts when its X-Hub-Signature-256 is the HMAC of the body as it was sent. Of a push
only repository, ref, before and after are taken; which files changed is for `dispatch` to see. A
delivery that comes again, from GitHub or from whoever has kept it, is the same event with the same
id, and what it asks for was started: nothing starts twice.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

from deployments.gateway.rules import Refused
from runner.push.changes import Push
from runner.push.event import push_event
from runner.push.git import COMMIT
from runner.tokens import is_repository

SECRET = "AXR_WEBHOOK_SECRET"
LARGEST = 25 * 1024 * 1024  # GitHub sends no more
SIGNATURE, KIND = "x-hub-signature-256", "x-github-event"


def is_signed(secret: str, body: bytes, signature: str | None) -> bool:
    """True when this body was signed with the secret."""
    made = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(made.encode(), (signature or "").encode())


def pushed(kind: str | None, body: bytes) -> dict[str, Any] | Refused | None:
    """The event to send upstream, None for what is no push of a branch, Refused for a bad form."""
    if kind != "push":
        return None
    try:
        told = json.loads(body)
        name = told["repository"]["full_name"]
        push = Push(told["ref"], told["before"], told["after"])
    except (ValueError, RecursionError, LookupError, TypeError):
        return Refused("no push of GitHub (set the content type to application/json)")
    if not is_repository(name) or not _is_push(push):
        return Refused("a push whose repository, ref, before or after is none")
    if not push.ref.startswith("refs/heads/") or not push.after.strip("0"):
        return None  # a tag, or a branch that is gone
    return push_event(name, push, None)


def _is_push(push: Push) -> bool:
    parts = (push.ref, push.before, push.after)
    if not all(isinstance(part, str) for part in parts) or len(push.ref) > 255:
        return False
    return all(COMMIT.fullmatch(commit) for commit in (push.before, push.after))
