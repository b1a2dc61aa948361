"""The answer on the commit: a GitHub commit status for each task file; never an error of a run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

import httpx

from blocks.logs import log
from blocks.repository import Repository
from runner.secrets import scrub

API = "AXR_GITHUB_API"  # for GitHub Enterprise Server: https://host/api/v3
StatusState = Literal["pending", "success", "failure", "error"]
MOST_DESCRIPTION = 140  # more is refused
TRIES, LONGEST_WAIT = 4, 60.0
AGAIN = (403, 429, 500, 502, 503, 504)  # 403 with Retry-After is GitHub's "too many at once"


@dataclass(frozen=True)
class CommitStatus:
    """What is shown beside the commit; `link` may be empty."""

    path: str
    state: StatusState
    description: str
    link: str = ""

    def body(self) -> dict[str, str]:
        """As GitHub takes it: one status for each context is shown, the newest."""
        what = " ".join(scrub(self.description).split())
        short = what if len(what) <= MOST_DESCRIPTION else what[: MOST_DESCRIPTION - 1] + "…"
        body = {
            "state": self.state,
            "context": f"axolotl-runner: {self.path}",
            "description": short,
        }
        return {**body, "target_url": self.link} if self.link.startswith("http") else body


def set_status(
    repository: Repository,
    commit: str,
    status: CommitStatus,
    *,
    transport: httpx.BaseTransport | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Set it; False where there is no GitHub, no token, or no success. Never raises."""
    base = _api(repository.url)
    if base is None or repository.token is None:
        return False
    headers = {
        "Authorization": f"Bearer {repository.token.get_secret_value()}",
        "Accept": "application/vnd.github+json",
        "User-Agent": "axolotl-runner",
    }
    said = ""
    with httpx.Client(headers=headers, timeout=10.0, transport=transport) as client:
        for attempt in range(TRIES):
            wait = 2.0**attempt
            try:
                answer = client.post(
                    f"{base}/repos/{repository.name}/statuses/{commit}", json=status.body()
                )
            except httpx.HTTPError as error:
                said = type(error).__name__
            else:
                if answer.is_success:
                    return True
                said, after = f"HTTP {answer.status_code}", answer.headers.get("Retry-After", "")
                refused = answer.status_code == 403 and not after
                if answer.status_code not in AGAIN or refused:
                    break
                wait = min(float(after), LONGEST_WAIT) if after.isdigit() else wait
            if attempt < TRIES - 1:
                sleep(wait)
    log().warning("No commit status for %s at %s: %s", status.path, commit[:12], said)
    return False


def _api(url: str) -> str | None:
    """Where this repository's host takes statuses, None when it is not known to do so."""
    if os.environ.get(API):
        return os.environ[API].rstrip("/")
    return "https://api.github.com" if urlsplit(url).hostname == "github.com" else None
