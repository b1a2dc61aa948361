"""Answers other than success, in the hub's form."""

from __future__ import annotations


class Refused(Exception):
    """A status with the hub's error headers and body."""

    def __init__(
        self,
        status: int,
        message: str,
        code: str | None = None,
        *,
        headers: dict[str, str] | None = None,
        body: dict[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.body = {"error": message, **(body or {})}
        self.headers = {"X-Error-Message": message, **(headers or {})}
        if code is not None:
            self.headers["X-Error-Code"] = code


class Dropped(Exception):
    """The connection ends here, without an answer."""


def no_repo(known: bool) -> Refused:
    """Private and missing repositories look the same; 401 to who has no token."""
    if known:
        return Refused(404, "Repository not found", "RepoNotFound")
    return Refused(401, "Repository not found", "RepoNotFound")


def no_entry(path: str) -> Refused:
    """No such file or folder in this revision."""
    return Refused(404, f"{path} does not exist on this revision", "EntryNotFound")
