"""`python -m deployments.report_push`: tell the control side on this machine of a push.

What the post-receive hook of a bare repository calls; also by hand, for a push that came while the
control side was down. Telling twice starts nothing twice.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx

from deployments import control
from runner.home import home
from runner.push.changes import Push, is_none
from runner.push.event import push_event
from runner.push.git import Git, GitError
from runner.push.pushed import task_files
from runner.push.rules import HEADS, read_rules

TRIES = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Send the event; 0 also for what is no branch, 1 when nobody took it."""
    parser = argparse.ArgumentParser(prog="python -m deployments.report_push", description=__doc__)
    for name in ("repository", "ref", "before", "after"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--git", type=Path, required=True, help="the bare repository")
    asked = parser.parse_args(arguments)
    push = Push(asked.ref, asked.before, asked.after)
    if not push.ref.startswith(HEADS) or is_none(push.after):
        return 0
    event = push_event(asked.repository, push, _files(Git(asked.git), push))
    side = control.running(home())
    problem = _send(side.api, event) if side else "it is not running (axolotl-runner up)"
    if problem:
        again = shlex.join([sys.executable, "-m", "deployments.report_push", *sys.argv[1:]])
        print(
            f"axolotl-runner was not told of this push: {problem}. Then: {again}", file=sys.stderr
        )
        return 1
    print(f"axolotl-runner was told of {push.ref}", file=sys.stderr)
    return 0


def _files(git: Git, push: Push) -> Any:
    """The task files by this process's rules; None leaves it to the control side, whose hold."""
    try:
        head = git.text("symbolic-ref", "HEAD")
        return task_files(git, push, read_rules(), default=head).files or None
    except GitError:
        return None


def _send(
    api: str, event: dict[str, Any], *, sleep: Callable[[float], None] = time.sleep
) -> str | None:
    """Give the event to the Prefect API; what went wrong, None when it has it."""
    user, _, password = os.environ.get("PREFECT_API_AUTH_STRING", "").partition(":")
    auth = (user, password) if user else None
    said = ""
    for attempt in range(TRIES):
        try:
            answer = httpx.post(f"{api}/events", json=[event], auth=auth, timeout=10.0)
        except httpx.HTTPError as error:
            said = type(error).__name__
        else:
            if answer.is_success:
                return None
            said = f"HTTP {answer.status_code}"
        if attempt < TRIES - 1:
            sleep(0.5 * 2**attempt)
    return said


if __name__ == "__main__":
    sys.exit(main())
