"""The user's repository at the pushed commit: our copy of it, and where it lies when training.

The control machine keeps a bare copy of each connected repository, <AXR_HOME>/repositories/. On a
pod of this machine the files lie in `source/` of the run's folder, on a rented one in `source/`
beside the runner's code (the bundle brings them). A run that was not pushed has the runner's own
repository.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from runner.push.git import Git
from runner.push.pushed import read
from runner.push.tree import MOST_BYTES, Item, items_of_commit, write_items
from runner.taskfile import decoded
from runner.tokens import is_repository

SOURCE, COPIES = "source", "repositories"


def source_root(run_folder: Path, code: Path) -> Path:
    """The root of the user's repository for the run in this folder; `code` is the runner's own."""
    found = (run_folder / SOURCE, code / SOURCE)
    return next((folder for folder in found if folder.is_dir()), code)


def copy_of(copies: Path, repository: str) -> Path:
    """Our bare copy of this repository (owner/name), whether it is there or not."""
    return copies / f"{repository.lower()}.git"


def pushed_items(
    copies: Path, repository: str, commit: str, *, most_bytes: int = MOST_BYTES
) -> list[Item]:
    """The files of a pushed commit; none for what our copies do not have. TooLarge, GitError."""
    if not is_repository(repository):
        return []
    git = Git(copy_of(copies, repository))
    if not git.folder.is_dir() or not git.has_commit(commit):
        return []
    return items_of_commit(git, commit, most_bytes=most_bytes)


def pushed_paths(copies: Path, repository: str, commit: str) -> list[str]:
    """The paths of a pushed commit's files; none for what our copies do not have. GitError."""
    if not is_repository(repository):
        return []
    git = Git(copy_of(copies, repository))
    if not git.folder.is_dir() or not git.has_commit(commit):
        return []
    return paths_at(git, commit)


def paths_at(git: Git, commit: str) -> list[str]:
    """The paths of a commit's files; GitError."""
    listed = git.run("ls-tree", "-r", "-z", "--name-only", commit)
    return [os.fsdecode(path) for path in listed.split(b"\0") if path]


def pushed_text(copies: Path, repository: str, commit: str, path: str) -> str | None:
    """A task file as it was at a pushed commit, None where our copies do not have it. ConfigError
    when it is no text.
    """
    content = pushed_content(copies, repository, commit, path)
    return None if content is None else decoded(content, path)


def pushed_content(copies: Path, repository: str, commit: str, path: str) -> bytes | None:
    """A file as it was at a pushed commit, None where our copies do not have it."""
    if not is_repository(repository):
        return None
    git = Git(copy_of(copies, repository))
    if not git.folder.is_dir() or not git.has_commit(commit):
        return None
    return content_at(git, commit, path)


def content_at(git: Git, commit: str, path: str) -> bytes | None:
    """A file of a commit, None where there is none; links do not count."""
    for entry in git.run("ls-tree", "-z", commit, "--", path).split(b"\0"):
        facts, _, name = entry.partition(b"\t")
        if name.decode("utf-8", "replace") == path and facts.split()[0] in (b"100644", b"100755"):
            return read(git, facts.split()[2].decode())
    return None


def lay_out(items: list[Item], run_folder: Path) -> None:
    """Put the files into the run's folder, once; a copy with its name is a whole one."""
    made, fresh = run_folder / SOURCE, run_folder / f"{SOURCE}.new"
    if made.is_dir():
        return
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    write_items(items, fresh)
    fresh.rename(made)
