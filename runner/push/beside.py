"""The files that a task file names, as they are in the commit: looked for beside it, then from the
root, as on the pod.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Iterator

from runner.push.git import Git
from runner.push.tree import LFS

SUFFIXES = (".json", ".jsonl", ".csv", ".parquet", ".arrow", ".txt", ".jinja", ".yml", ".yaml")


def pointers(git: Git, commit: str, task_file: str, names: Iterable[str]) -> Iterator[str]:
    """The named files of which the commit holds only a Git LFS pointer."""
    for name in names:
        for path in _candidates(task_file, name):
            size = _size(git, commit, path)
            if size is not None:
                if size < 1024 and git.run("cat-file", "blob", f"{commit}:{path}").startswith(LFS):
                    yield path
                break


def missing(git: Git, commit: str, task_file: str, names: Iterable[str]) -> Iterator[str]:
    """The names that are meant as local files and are not in the commit."""
    for name in names:
        local = name.startswith(("./", "../")) or name.endswith(SUFFIXES)
        if local and not os.path.isabs(name) and "://" not in name and "*" not in name:
            found = any(
                git.holds("cat-file", "-e", f"{commit}:{path}")
                for path in _candidates(task_file, name)
            )
            if not found:
                yield name


def _candidates(task_file: str, name: str) -> list[str]:
    """Paths in the repository; none for what leads out of it."""
    if os.path.isabs(name) or "://" in name or set(name) & set("\0\n{"):
        return []
    folders = (posixpath.dirname(task_file), "")
    paths = [posixpath.normpath(posixpath.join(folder, name)) for folder in folders]
    return [path for path in dict.fromkeys(paths) if not path.startswith("..") and path != "."]


def _size(git: Git, commit: str, path: str) -> int | None:
    """Of a file in the commit, None where there is none."""
    if not git.holds("cat-file", "-e", f"{commit}:{path}"):
        return None
    if git.text("cat-file", "-t", f"{commit}:{path}") != "blob":
        return None
    return int(git.text("cat-file", "-s", f"{commit}:{path}"))
