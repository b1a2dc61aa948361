"""The files that a task file names, as they are in the commit: looked for beside it, then from the
root, as on the pod.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from runner.push.git import Git
from runner.push.tree import LFS

SUFFIXES = (".json", ".jsonl", ".csv", ".parquet", ".arrow", ".txt", ".jinja", ".yml", ".yaml")
LARGEST_POINTER = 1024  # bytes


@dataclass(frozen=True)
class Listed:
    """A file of a commit."""

    blob: str
    size: int


def listing(git: Git, commit: str) -> dict[str, Listed | None]:
    """All paths of the commit; None stands for a folder."""
    found: dict[str, Listed | None] = {}
    for line in git.run("ls-tree", "-r", "-t", "-l", "-z", commit).split(b"\0"):
        facts, _, name = line.partition(b"\t")
        if line:
            _, kind, blob, size = facts.decode().split()
            found[os.fsdecode(name)] = Listed(blob, int(size)) if kind == "blob" else None
    return found


def pointers(
    git: Git, there: Mapping[str, Listed | None], task_file: str, names: Iterable[str]
) -> Iterator[str]:
    """The named files of which the commit holds only a Git LFS pointer."""
    for name in names:
        path = next((each for each in _candidates(task_file, name) if each in there), "")
        file = there.get(path)
        small = file is not None and file.size <= LARGEST_POINTER
        if file and small and git.run("cat-file", "blob", file.blob).startswith(LFS):
            yield path


def missing(
    there: Mapping[str, Listed | None], task_file: str, names: Iterable[str]
) -> Iterator[str]:
    """The names that are meant as local files and are not in the commit."""
    for name in names:
        local = name.startswith(("./", "../")) or name.endswith(SUFFIXES)
        elsewhere = os.path.isabs(name) or "://" in name or "*" in name
        found = any(path in there for path in _candidates(task_file, name))
        if local and not elsewhere and not found:
            yield name


def _candidates(task_file: str, name: str) -> list[str]:
    """Paths in the repository; none for what leads out of it."""
    if os.path.isabs(name) or "://" in name or set(name) & set("\0\n{"):
        return []
    folders = (posixpath.dirname(task_file), "")
    paths = [posixpath.normpath(posixpath.join(folder, name)) for folder in folders]
    return [path for path in dict.fromkeys(paths) if not path.startswith("..") and path != "."]
