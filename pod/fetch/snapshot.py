"""Files of one repository at one commit, as its listing describes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from pod.fetch.inputs import Kind


@dataclass(frozen=True)
class RemoteFile:
    """A file: git's hash of it, or, of a large one, the SHA-256 of its content; `xet` where that
    is offered.
    """

    path: str
    size: int
    oid: str
    sha256: str | None = None
    xet: bool = False

    @property
    def blob(self) -> str:
        """Its name in the cache: what the hub gives as its ETag."""
        return self.sha256 or self.oid


@dataclass(frozen=True)
class Snapshot:
    """Some files of a repository; `revision` is the commit, `asked` what it was resolved from."""

    repo: str
    kind: Kind
    revision: str
    asked: str | None = None
    files: tuple[RemoteFile, ...] = ()

    @property
    def bytes(self) -> int:
        """Of all its files, each content once."""
        return sum({file.blob: file.size for file in self.files}.values())

    @property
    def label(self) -> str:
        """How people are told of it."""
        return f"{'data set ' if self.kind == 'dataset' else ''}{self.repo}"

    def only(self, files: Iterable[RemoteFile]) -> Snapshot:
        """The same with these files alone."""
        return replace(self, files=tuple(files))

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Snapshot:
        """Out of JSON."""
        files = tuple(RemoteFile(**file) for file in plain["files"])
        return cls(**{**plain, "files": files})
