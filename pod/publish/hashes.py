"""The two hashes by which the hub names files: SHA-256 of large ones, git's own of the others."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from pod.rundir import sha256_of

BLOCK = 4 * 1024 * 1024


@dataclass
class LocalFile:
    """A file to publish; each hash is computed when it is asked for, and once."""

    path: Path
    size: int
    _known: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path) -> LocalFile:
        return cls(path, path.stat().st_size)

    def sha256(self) -> str:
        """Of its content."""
        if "sha256" not in self._known:
            self._known["sha256"] = sha256_of(self.path)
        return self._known["sha256"]

    def blob(self) -> str:
        """Git's: SHA-1 of a header with the size, and the content."""
        if "blob" not in self._known:
            digest = hashlib.sha1(b"blob %d\0" % self.size)
            with self.path.open("rb") as file:
                while block := file.read(BLOCK):
                    digest.update(block)
            self._known["blob"] = digest.hexdigest()
        return self._known["blob"]


@dataclass(frozen=True)
class RemoteFile:
    """What a listing of the hub says of a file; `sha256` of large ones only."""

    size: int
    blob: str
    sha256: str | None = None

    def is_same(self, local: LocalFile) -> bool:
        """Whether it is this very content."""
        if self.size != local.size:
            return False
        if self.sha256 is not None:
            return self.sha256 == local.sha256()
        return self.blob == local.blob()


def local_files(folder: Path) -> dict[str, LocalFile]:
    """The files below a folder by their names in it, with slashes."""
    return {
        path.relative_to(folder).as_posix(): LocalFile.of(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
