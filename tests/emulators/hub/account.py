"""Who is there, what their tokens may do, and which repositories exist."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from typing import Any, Literal

from tests.emulators.hub.problems import Refused, no_repo
from tests.emulators.hub.repository import Repository, key_of

NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}")


@dataclass(frozen=True)
class Token:
    """A token of a user with a role."""

    user: str
    role: Literal["write", "read"]
    orgs: tuple[str, ...] = ()

    def may_write(self, owner: str) -> bool:
        return self.role == "write" and owner in (self.user, *self.orgs)


TOKENS = {
    "hf_write": Token("me", "write", ("team",)),
    "hf_read": Token("me", "read", ("team",)),
    "hf_other": Token("other", "write"),
}


class Accounts:
    """The tokens and repositories of the hub."""

    def __init__(self) -> None:
        self.repos: dict[str, Repository] = {}
        self.lock = threading.RLock()

    def identify(self, header: str | None) -> Token | None:
        """Whose request it is, None without a token."""
        if header is None:
            return None
        kind, _, token = header.partition(" ")
        if kind != "Bearer" or token not in TOKENS:
            message = "Invalid credentials in Authorization header"
            raise Refused(401, message, body={"error": "Invalid username or password."})
        return TOKENS[token]

    def whoami(self, token: Token | None) -> dict[str, Any]:
        """The answer of whoami-v2."""
        if token is None:
            raise Refused(401, "Invalid username or password.")
        return {
            "type": "user",
            "id": token.user,
            "name": token.user,
            "fullname": token.user,
            "email": f"{token.user}@example.org",
            "isPro": False,
            "orgs": [{"type": "org", "name": org, "roleInOrg": "write"} for org in token.orgs],
            "auth": {
                "type": "access_token",
                "accessToken": {"displayName": "emulated", "role": token.role},
            },
        }

    def create(self, token: Token | None, asked: dict[str, Any], url: str) -> dict[str, Any]:
        """Make a repository of a model or a data set."""
        if token is None:
            raise Refused(401, "Invalid username or password.")
        kind = str(asked.get("type", "model"))
        if kind not in ("model", "dataset"):
            raise Refused(400, "only models and data sets are emulated")
        strange = set(asked) - {"name", "organization", "type", "visibility", "private"}
        if strange:
            raise Refused(400, f"unknown keys: {', '.join(sorted(strange))}")
        owner, name = asked.get("organization") or token.user, str(asked.get("name"))
        if not NAME.fullmatch(name) or "--" in name or ".." in name:
            raise Refused(400, f"invalid name of a repository: {name!r}")
        if not token.may_write(owner):
            raise Refused(
                403,
                f'You don\'t have the rights to create a model under the namespace "{owner}"',
            )
        key = key_of(kind, f"{owner}/{name}")
        made = {"url": f"{url}/{key}", "name": f"{owner}/{name}"}
        if key in self.repos:
            raise Refused(409, f"You already created this {kind} repo", body={**made})
        visibility = asked.get("visibility") or ("private" if asked.get("private") else "public")
        self.repos[key] = Repository(f"{owner}/{name}", owner, visibility == "private", kind)
        return made

    def delete(self, token: Token | None, asked: dict[str, Any]) -> None:
        """Delete a repository."""
        owner = asked.get("organization") or (token.user if token else "")
        key = key_of(str(asked.get("type", "model")), f"{owner}/{asked.get('name')}")
        self.writable(token, key)
        del self.repos[key]

    def readable(self, token: Token | None, key: str) -> Repository:
        """The repository, if this token may see it."""
        repo = self.repos.get(key)
        if repo is None:
            raise no_repo(known=token is not None)
        if repo.private and (token is None or repo.owner not in (token.user, *token.orgs)):
            raise no_repo(known=token is not None)
        return repo

    def check_gate(self, token: Token | None, repo: Repository) -> None:
        """Raise Refused where the files of a gated repository are not for this token."""
        if not repo.gated or (token is not None and token.user in (repo.owner, *repo.granted)):
            return
        kind = repo.kind
        if token is None:
            message = (
                f"Access to {kind} {repo.id} is restricted. You must have access to it and be "
                "authenticated to access it. Please log in."
            )
            raise Refused(401, message, "GatedRepo")
        message = (
            f"Access to {kind} {repo.id} is restricted and you are not in the authorized list. "
            f"Visit https://huggingface.co/{repo.key} to ask for access."
        )
        raise Refused(403, message, "GatedRepo")

    def writable(self, token: Token | None, key: str) -> Repository:
        """The repository, if this token may change it."""
        repo = self.readable(token, key)
        if token is None:
            raise Refused(401, "Invalid username or password.")
        if not token.may_write(repo.owner):
            raise Refused(
                403,
                "Forbidden: you must use a write token to upload to a repository.",
            )
        return repo
