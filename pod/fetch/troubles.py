"""What can go wrong with a download, by what is to be done about it.

FetchError
├── Refused    the hub says no, and will say so again: the task file, the token or its rights
├── DiskFull   it does not fit on the volume
├── Busy       passes: the same again, after `after` seconds if the hub names them
├── Corrupt    the content is not what its hash says
└── NoWay      every way was tried
"""

from __future__ import annotations

from collections.abc import Mapping

PASSING = (408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524)
REFUSALS = (401, 402, 403, 404, 410, 451)


class FetchError(Exception):
    """The message is one sentence: what, where, what to do."""


class Refused(FetchError):
    """The hub says no."""


class DiskFull(FetchError):
    """It does not fit."""


class Busy(FetchError):
    """The other side is away or busy."""

    def __init__(self, message: str, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after


class Corrupt(FetchError):
    """Wrong content."""


class NoWay(FetchError):
    """Nothing helped."""


def refusal(
    status: int,
    headers: Mapping[str, str],
    *,
    what: str,
    endpoint: str,
    page: str,
    has_token: bool,
) -> Refused:
    """What a status of the hub means for the user; `what` is a repository or a file of it, `page`
    the path of its page.
    """
    code = headers.get("X-Error-Code") or ""
    if code == "GatedRepo" or status == 403:
        whose = "the account of HF_TOKEN" if has_token else "an account, and set its HF_TOKEN"
        advice = f"ask for access at {endpoint}/{page} with {whose}"
        return Refused(f"{what} is gated ({status} from {endpoint}): {advice}")
    if code == "RevisionNotFound":
        return Refused(f"{what} has no such revision ({status} from {endpoint}): correct it")
    if code == "EntryNotFound":
        return Refused(f"{what} is not there any more ({status} from {endpoint})")
    if status == 401 and code != "RepoNotFound" and has_token:
        return Refused(
            f"{endpoint} refuses HF_TOKEN (401): it is wrong or has run out; set another"
        )
    if status in (401, 404):
        unseen = "or HF_TOKEN does not open it" if has_token else "or it needs an HF_TOKEN"
        advice = "correct the name in the task file, or the token"
        return Refused(f"{what} is not on {endpoint} ({status}), {unseen}: {advice}")
    message = headers.get("X-Error-Message") or "no reason given"
    return Refused(f"{what} is refused by {endpoint} ({status}): {message}")


def after(headers: Mapping[str, str]) -> float | None:
    """The seconds of Retry-After; None for a date or nothing."""
    text = (headers.get("Retry-After") or "").strip()
    return float(text) if text.replace(".", "", 1).isdigit() else None
