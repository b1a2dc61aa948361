"""What a commit message can say to the runner, in its last lines:

Runner: skip            the files that this commit changed last start nothing
Runner: rerun           what it changed starts again; if that is nothing (an empty commit), what the
                        last commit before it with task files changed
Runner: rerun PATTERN   the task files that fit start again

They belong to their commit, not to a push, so it does not matter how many commits are pushed or
seen together.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from runner.push.changes import REGULAR
from runner.push.git import COMMIT, Git
from runner.push.rules import Rules, matches

MOST_COMMITS = 1000
_WORDS = "%(trailers:key=Runner,valueonly,unfold,separator=%x1f)"


@dataclass(frozen=True)
class Rerun:
    """The commit that asks for it, and the path of a task file that is there now."""

    commit: str
    path: str
    blob: str


def words(git: Git, commit: str) -> tuple[str, ...]:
    """The values of the commit's `Runner:` trailers."""
    return _values(git.text("log", "-1", f"--format={_WORDS}", commit))


def skips(git: Git, commit: str) -> bool:
    """True when this commit asks that nothing starts."""
    return any(word.lower() == "skip" for word in words(git, commit))


def reruns(git: Git, base: str, after: str, rules: Rules) -> Iterator[Rerun]:
    """What the commits after `base` want again; `base` may be the empty tree."""
    known = [f"^{base}"] if git.has_commit(base) else []
    said = git.text("log", f"-{MOST_COMMITS}", "-z", f"--format=%H{_WORDS}", after, *known, "--")
    there: dict[str, str] = {}
    for line in said.split("\0"):
        match = COMMIT.match(line)
        values = _values(line[match.end() :]) if match else ()
        for value in values:
            word, _, pattern = value.partition(" ")
            if match is None or word.lower() != "rerun":
                continue
            there = there or task_paths(git, after, rules)
            commit = match.group()
            wanted = [pattern.strip()] if pattern.strip() else _last_changed(git, commit, rules)
            for path, blob in there.items():
                if any(path == each or matches(each, path) for each in wanted):
                    yield Rerun(commit, path, blob)


def task_paths(git: Git, commit: str, rules: Rules) -> dict[str, str]:
    """The files of a commit that fit the rules: path → blob."""
    found = {}
    for entry in git.run("ls-tree", "-r", "-z", commit).split(b"\0"):
        facts, _, name = entry.partition(b"\t")
        path = os.fsdecode(name)
        if entry and facts.split()[0].decode() in REGULAR and rules.wants_path(path):
            found[path] = facts.split()[2].decode()
    return found


def _last_changed(git: Git, commit: str, rules: Rules) -> list[str]:
    """What this commit changed of the paths that count, else what the nearest one before it did."""
    said = git.run(
        "log", f"-{MOST_COMMITS}", "-z", "--format=%x1e", "--name-only", "--no-renames",
        "--diff-merges=first-parent", commit, "--",
    )  # fmt: skip
    for of_commit in said.split(b"\x1e"):
        names = (os.fsdecode(name.strip(b"\n")) for name in of_commit.split(b"\0"))
        found = [name for name in names if name and rules.wants_path(name)]
        if found:
            return found
    return []


def _values(text: str) -> tuple[str, ...]:
    return tuple(value.strip() for value in text.split("\x1f") if value.strip())
