"""What the checks know beside the task file: the files around it, and the variables of the run."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from typing import Literal, Protocol

from runner.callbacks_found import Read
from runner.push.tree import is_sent

Kind = Literal["file", "folder"]


class Files(Protocol):
    """The files that lie around a task file; paths count from the root of the repository."""

    def kind(self, path: str) -> Kind | None:
        """What there is at a path, a pattern with * included; None for nothing."""

    def near(self, path: str) -> list[str]:
        """Paths of files and folders whose names are like it."""

    def rows(self, path: str) -> int | None:
        """The rows of a file of one row a line; None where that can't be known cheaply."""

    def left_behind(self, path: str) -> bool:
        """Whether it lies on this machine, but no pod would get it."""


@dataclass(frozen=True)
class FolderFiles:
    """The files of a folder on this machine."""

    root: Path
    most_bytes: int = 20_000_000  # counting their lines takes 10 ms

    def kind(self, path: str) -> Kind | None:
        full = os.path.normpath(self.root / path)
        try:
            if os.path.isfile(full):
                return "file"
            return "folder" if os.path.isdir(full) or _matches(full) else None
        except (OSError, ValueError):
            return None

    def near(self, path: str) -> list[str]:
        full = Path(os.path.normpath(self.root / path))
        try:
            names = sorted(entry.name for entry in os.scandir(full.parent))
        except (OSError, ValueError):
            return []
        folder = PurePosixPath(path).parent
        return [str(folder / name) for name in _near_names(full.name, names)]

    def rows(self, path: str) -> int | None:
        full = Path(os.path.normpath(self.root / path))
        try:
            if not full.is_file() or full.stat().st_size > self.most_bytes:
                return None
            return sum(1 for line in full.open("rb") if line.strip())
        except (OSError, ValueError):
            return None

    def left_behind(self, path: str) -> bool:
        return False


class CommitFiles:
    """The files that a pod gets, known by their paths; `folder` is where they lie on this machine,
    if they do.
    """

    def __init__(self, paths: Iterable[str], folder: Path | None = None) -> None:
        self._files = frozenset(path for path in paths if is_sent(path))
        self._here = FolderFiles(folder) if folder else None
        self._folders = frozenset(
            str(parent) for path in self._files for parent in PurePosixPath(path).parents
        )

    def kind(self, path: str) -> Kind | None:
        whole = os.path.normpath(path)
        if whole in self._files:
            return "file"
        if whole in self._folders:
            return "folder"
        if glob.has_magic(whole) and any(PurePosixPath(each).match(whole) for each in self._files):
            return "folder"
        return None

    def near(self, path: str) -> list[str]:
        whole = PurePosixPath(os.path.normpath(path))
        every = self._files | self._folders
        names = sorted(
            {
                PurePosixPath(each).name
                for each in every
                if PurePosixPath(each).parent == whole.parent
            }
        )
        return [str(whole.parent / name) for name in _near_names(whole.name, names)]

    def rows(self, path: str) -> int | None:
        return self._here.rows(path) if self._here else None

    def left_behind(self, path: str) -> bool:
        return self._here is not None and self._here.kind(path) is not None


def _matches(pattern: str) -> bool:
    return glob.has_magic(pattern) and bool(glob.glob(pattern))


def _near_names(name: str, names: Sequence[str]) -> list[str]:
    near = get_close_matches(name, names, n=2, cutoff=0.6)
    stem = PurePosixPath(name).stem
    return near or [each for each in names if PurePosixPath(each).stem == stem][:2]


@dataclass(frozen=True)
class Ground:
    """What is known around a task file.

    `files`: None where they can't be known, and then no path is looked for. `carried`: only what
    lies below the root reaches the pod. `clouds`: where the run may go. `environment`: the
    variables that the control side has and a pod gets; None where they can't be known, as at a pull
    request, and then nothing is said about secrets. `read` gives a file's content by its path from
    the root; without it no file is looked into.
    """

    clouds: tuple[str, ...]
    files: Files | None = None
    folder: str = "."
    carried: bool = True
    environment: Mapping[str, str] | None = field(default=None, repr=False)
    read: Read | None = field(default=None, repr=False)

    def found(self, path: str) -> str | None:
        """Where a relative path is, from the root: beside the task file, else from the root."""
        if self.files is None:
            return None
        for start in dict.fromkeys((self.folder, ".")):
            whole = os.path.normpath(os.path.join(start, path))
            if self.files.kind(whole):
                return whole
        return None

    def left_behind(self, path: str) -> bool:
        """Whether it lies here, beside the task file or from the root, and no pod gets it."""
        if self.files is None:
            return False
        starts = dict.fromkeys((self.folder, "."))
        whole = (os.path.normpath(os.path.join(start, path)) for start in starts)
        return any(self.files.left_behind(each) for each in whole)

    def near(self, path: str) -> list[str]:
        """What there is with a name like it, as it would be written in the file."""
        if self.files is None:
            return []
        for start in dict.fromkeys((self.folder, ".")):
            found = self.files.near(os.path.normpath(os.path.join(start, path)))
            if found:
                return [os.path.relpath(each, start) for each in found]
        return []
