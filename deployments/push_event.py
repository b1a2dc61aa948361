"""`python3 -m deployments.push_event`: the event of a push, as JSON, for whoever sends it.

Needs Python 3.11 and git, nothing else. Writes nothing to stdout when the push starts nothing; what
it passes over, and why, goes to stderr. Names of files are data here and never part of a command.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from runner.push.changes import Push
from runner.push.event import push_event
from runner.push.git import COMMIT, Git, GitError
from runner.push.pushed import task_files
from runner.push.rules import HEADS, read_rules


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the event; 0 also when there is none, 2 for bad arguments, 1 when git fails."""
    parser = argparse.ArgumentParser(prog="python3 -m deployments.push_event", description=__doc__)
    parser.add_argument("--repository", required=True, help="owner/name")
    parser.add_argument("--ref", required=True, help="the branch, as refs/heads/main")
    parser.add_argument(
        "--before", required=True, help="the commit that it was at, 40 zeros for none"
    )
    parser.add_argument("--after", required=True, help="the pushed commit")
    parser.add_argument("--default", default="", help="the default branch; HEAD's without it")
    parser.add_argument("--git", type=Path, default=Path(), help="the repository's folder")
    asked = parser.parse_args(arguments)
    push = Push(asked.ref, asked.before, asked.after)
    if not all(COMMIT.fullmatch(commit) for commit in (push.before, push.after)):
        parser.error("--before and --after are commits, 40 hex digits")
    try:
        event = event_of(Git(asked.git), asked.repository, push, asked.default)
    except GitError as error:
        print(error, file=sys.stderr)
        return 1
    if event:
        print(json.dumps(event))
    return 0


def event_of(git: Git, repository: str, push: Push, default: str = "") -> dict[str, object] | None:
    """The event of this push, None when it starts nothing; GitError."""
    branch = default or git.text("symbolic-ref", "--short", "HEAD")
    found = task_files(git, push, read_rules(), default=HEADS + branch.removeprefix(HEADS))
    for each in found.passed_over:
        print(f"{each.path} starts nothing: {each.reason}", file=sys.stderr)
    if not found.files and not found.guessed:
        return None
    # Where the commit before was not there, whoever has it sees what really changed.
    files = None if found.guessed else found.files
    for file in files or ():
        print(f"{file.path} is told of", file=sys.stderr)
    return push_event(repository, push, files)


if __name__ == "__main__":
    sys.exit(main())
