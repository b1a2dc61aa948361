"""A folder as a place: another mount of the pod, or a disk that outlives it."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pod.store.places import Source, StoreError, copy_checked

UNFINISHED = ".part"


class FolderPlace:
    """Files below `root`; each appears under its name once it is whole."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = f"file://{root}"

    def check(self) -> None:
        """Make the folder; raises StoreError when that or writing is impossible."""
        with self._told("write to it"):
            self.root.mkdir(parents=True, exist_ok=True)
            probe = self.root / f".probe{UNFINISHED}"
            probe.write_bytes(b"")
            probe.unlink()

    def listing(self, prefix: str) -> dict[str, int]:
        """The names below a folder."""
        found = {}
        with self._told("list it"):
            for path in sorted((self.root / prefix).rglob("*")):
                if path.is_file() and not path.name.endswith(UNFINISHED):
                    found[str(path.relative_to(self.root))] = path.stat().st_size
        return found

    def put(self, files: Mapping[str, Source], *, delete: Sequence[str] = ()) -> None:
        """Copy one after the other, hashing on the way."""
        self.delete([*files][-1:])
        for name, source in files.items():
            target = self.root / name
            unfinished = target.with_name(target.name + UNFINISHED)
            with source.path.open("rb") as reader, self._told(f"write {name} to it"):
                target.parent.mkdir(parents=True, exist_ok=True)
                with unfinished.open("wb") as writer:
                    copy_checked(reader, writer, name, source.sha256)
                    writer.flush()
                    os.fsync(writer.fileno())
                unfinished.replace(target)
        self.delete(delete)

    def get(self, name: str, target: Path) -> None:
        """Copy one file."""
        path = self.root / name
        if not path.is_file():
            raise KeyError(name)
        with self._told(f"read {name} from it"):
            shutil.copyfile(path, target)

    def delete(self, names: Sequence[str]) -> None:
        """Unlink, and take folders along that become empty."""
        with self._told("delete from it"):
            for name in names:
                path = self.root / name
                path.unlink(missing_ok=True)
                _remove_empty(path.parent, self.root)

    def tidy(self, prefix: str) -> None:
        """Remove files that a killed mirror has left half-written."""
        with self._told("tidy it"):
            for path in [*(self.root / prefix).rglob(f"*{UNFINISHED}")]:
                path.unlink(missing_ok=True)
                _remove_empty(path.parent, self.root)

    @contextlib.contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"checkpoint store {self.url}: can't {what}: {error.strerror or error}; is the "
                "volume mounted, writable and not full?"
            ) from error


def _remove_empty(folder: Path, root: Path) -> None:
    while folder != root:
        try:
            folder.rmdir()
        except OSError:  # not empty, or gone
            return
        folder = folder.parent
