"""`python -m deployments.check_changes`: check the task files that a branch changes, as a comment.

Reads them from git at the head commit, so nothing of the branch is run or followed. Prints the
comment; exit code 2 when one of the files would not start, 0 otherwise.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from deployments.commenting import CheckedFile, comment, nothing
from deployments.estimating import estimate_task
from runner.callbacks_found import Read
from runner.checks.gathering import check_tasks, faults_of
from runner.checks.ground import Ground
from runner.checks.grounds import ground_of_commit
from runner.errors import ConfigError
from runner.estimates.telling import estimate_findings
from runner.finding import Finding
from runner.push.changes import Push
from runner.push.git import Git, GitError
from runner.push.pushed import read, task_files
from runner.push.rules import HEADS, read_rules
from runner.sources import content_at, paths_at
from runner.taskfile import TaskFileError, decoded, parse_task_file

BRANCH = f"{HEADS}pull"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the comment of what lies between two commits."""
    parser = argparse.ArgumentParser(
        prog="python -m deployments.check_changes", description=__doc__
    )
    parser.add_argument("--git", type=Path, default=Path())
    parser.add_argument("--base", required=True, help="the commit that the branch goes into")
    parser.add_argument("--head", required=True, help="the commit of the branch")
    asked = parser.parse_args(arguments)
    try:
        files = checked(Git(asked.git), asked.base, asked.head)
    except GitError as error:
        print(error, file=sys.stderr)
        return 1
    print(comment(files, asked.head) if files else nothing(asked.head))
    return 2 if any(file.verdict == "stop" for file in files) else 0


def checked(git: Git, base: str, head: str) -> list[CheckedFile]:
    """What `check` says of each task file that the branch changes; GitError."""
    left_at = git.text("merge-base", base, head)
    rules = replace(read_rules(), branches=("pull",))
    found = task_files(git, Push(BRANCH, left_at, head), rules, default=BRANCH)
    paths = paths_at(git, head)
    beside = partial(content_at, git, head)
    return [
        check_text(file.path, read(git, file.blob), paths, beside, offline=False)
        for file in found.files
    ]


def check_text(
    path: str,
    content: bytes,
    paths: Sequence[str] | None = None,
    beside: Read | None = None,
    *,
    offline: bool = True,
) -> CheckedFile:
    """The verdict on one file, from its bytes, the paths of the files of its commit, and what
    `beside` reads of them. Unless `offline` the hub is asked for the model's size; no cloud is, and
    nothing is said about secrets: nobody's key is here.
    """
    try:
        task = parse_task_file(decoded(content, path), path)
    except TaskFileError as error:
        text = content.decode("utf-8", "replace")
        return CheckedFile(path, "stop", faults_of(error, text).findings)
    except ConfigError as error:
        return CheckedFile(path, "stop", [Finding(0, 0, "", "stop", "config", str(error), "")])
    clouds = tuple(task.settings.cloud)
    ground = Ground(clouds, read=beside)
    if paths is not None:
        ground = ground_of_commit(paths, path, clouds, None, beside)
    (found,) = check_tasks([(task, ground)])
    estimate = estimate_task(task, offline=offline, ask_clouds=False)
    found = found.with_more(estimate_findings(task, estimate, clouds))
    return CheckedFile(path, found.verdict, found.findings, task.settings, estimate)


if __name__ == "__main__":
    sys.exit(main())
