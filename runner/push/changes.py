"""The files that a push changed, from git's own trees: no list of an API, which ends at 300 files.

The rules, each with a test on a real history:
- compared are the two ends of the push, so a merge or a force push starts what differs from before;
- a new branch is compared with where it left the default branch; the first push of a repository
  with nothing;
- where the commit before is gone (a force push, cleaned up since) a branch is compared with where
  it left the default branch, the default branch with the first parent of its tip;
- a file that only got another name inside the paths that count, or another mode, is none;
- symbolic links and submodules are none; nor is a name that is no UTF-8 or has control characters.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from runner.push.git import Git
from runner.push.rules import HEADS, Rules

REGULAR = ("100644", "100755")


@dataclass(frozen=True)
class Push:
    """A branch (`ref`, in full) moved from one commit to another; 40 zeros stand for none."""

    ref: str
    before: str
    after: str


@dataclass(frozen=True)
class Changed:
    """A file that the push brought; `blob` is git's name for its content."""

    path: str
    blob: str


@dataclass(frozen=True)
class PassedOver:
    """A path that fits the rules and starts nothing."""

    path: str
    reason: str


@dataclass(frozen=True)
class Changes:
    """All of a push; `base` is what was compared, `guessed` when the commit before was gone."""

    base: str
    files: tuple[Changed, ...]
    passed_over: tuple[PassedOver, ...]
    guessed: bool = False


@dataclass(frozen=True)
class _Entry:
    status: str
    mode: str
    old_blob: str
    blob: str
    path: str


def is_none(commit: str) -> bool:
    """True for the zeros that git writes where there is no commit."""
    return re.fullmatch("0+", commit) is not None


def changes(git: Git, push: Push, rules: Rules, *, default: str) -> Changes:
    """What the push changed of the paths that count; `default` is the default branch (in full)."""
    base, guessed = _base(git, push, default)
    entries = [entry for entry in _diff(git, base, push.after) if rules.wants_path(entry.path)]
    left = Counter(entry.old_blob for entry in entries if entry.status == "D")
    files, over = [], []
    for entry in entries:
        if entry.status == "D":
            continue
        reason = _not_a_file(entry)
        if not reason and entry.status == "A" and left[entry.blob] > 0:
            left[entry.blob] -= 1
            reason = "only its name changed"
        if not reason and entry.old_blob == entry.blob:
            reason = "only its mode changed"
        if reason:
            over.append(PassedOver(shown(entry.path), reason))
        else:
            files.append(Changed(entry.path, entry.blob))
    return Changes(base, tuple(files), tuple(over), guessed)


def shown(path: str) -> str:
    """A path that can be printed and sent, whatever bytes it has."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _base(git: Git, push: Push, default: str) -> tuple[str, bool]:
    if git.has_commit(push.before):
        return push.before, False
    new = is_none(push.before)
    if push.ref != default:
        if left_at := _left_at(git, push.after, default):
            return left_at, not new
    elif not new and git.holds("rev-parse", "--verify", "-q", f"{push.after}^1"):
        return git.text("rev-parse", f"{push.after}^1"), True
    # The empty tree: git knows it without having it.
    return git.text("hash-object", "-t", "tree", "--stdin"), not new


def _left_at(git: Git, commit: str, default: str) -> str | None:
    """Where the commit's history left the default branch, None where they share nothing."""
    for name in (default, f"refs/remotes/origin/{default.removeprefix(HEADS)}"):
        if git.holds("merge-base", commit, name):
            return git.text("merge-base", commit, name)
    return None


def _diff(git: Git, base: str, after: str) -> Iterator[_Entry]:
    """Sorted by path. No rename detection: what got a new name is one file less and one more."""
    said = git.run(
        "diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", "--no-ext-diff",
        "--no-commit-id", base, after,
    )  # fmt: skip
    fields = said.split(b"\0")
    for facts, path in zip(fields[::2], fields[1::2], strict=False):
        _, mode, old_blob, blob, status = facts.decode().split()
        yield _Entry(status[0], mode, old_blob, blob, os.fsdecode(path))


def _not_a_file(entry: _Entry) -> str:
    if entry.mode not in REGULAR:
        return "a symbolic link" if entry.mode == "120000" else "a submodule"
    try:
        entry.path.encode()
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    return "its name has a control character" if re.search(r"[\x00-\x1f\x7f]", entry.path) else ""
