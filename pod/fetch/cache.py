"""The hub's cache folder, as huggingface_hub lays it out, so that each library finds what is in it.

    <cache>/models--owner--name/blobs/<etag>                    the contents
                               /snapshots/<commit>/<path>       links to them
                               /refs/<branch>                   the commit it stood at
    <cache>/.verified/<etag>   {size, mtime_ns} of a content whose hash was right

A content is named by its hash: SHA-256 of large files, git's SHA-1 of the others. The marks save
reading 80 GB again when the next run wants the same model; a file that was touched since is read.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from pod.fetch.snapshot import RemoteFile, Snapshot
from pod.rundir import read_json, replace_text, write_json

BLOCK = 1024 * 1024


class Hash(Protocol):
    """What hashlib makes."""

    def update(self, data: memoryview | bytes, /) -> None: ...

    def hexdigest(self) -> str: ...


class Cache:
    """The cache folder of one machine's or volume's downloads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def repository(self, snapshot: Snapshot) -> Path:
        """The folder of a repository."""
        name = "--".join([f"{snapshot.kind}s", *snapshot.repo.split("/")])
        return self.folder / name

    def blob(self, snapshot: Snapshot, file: RemoteFile) -> Path:
        """Where the content of a file lies."""
        return self.repository(snapshot) / "blobs" / file.blob

    def pointer(self, snapshot: Snapshot, file: RemoteFile) -> Path:
        """Where the libraries look for a file."""
        return self.repository(snapshot) / "snapshots" / snapshot.revision / file.path

    def missing(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with the files alone that are not here, by their sizes."""
        return snapshot.only(file for file in snapshot.files if not self._is_here(snapshot, file))

    def is_whole(self, snapshot: Snapshot) -> bool:
        """Whether every file is here, and was found right."""
        if self.missing(snapshot).files:
            return False
        found = ((self.pointer(snapshot, file), file) for file in snapshot.files)
        return all(self._is_verified(path, file) for path, file in found)

    def finish(self, snapshot: Snapshot) -> None:
        """Link the contents that are here under their paths, and note where the branch stood."""
        for file in snapshot.files:
            blob, pointer = self.blob(snapshot, file), self.pointer(snapshot, file)
            if blob.exists() and not pointer.exists():
                _link(blob, pointer)
        if snapshot.asked != snapshot.revision:
            ref = self.repository(snapshot) / "refs" / (snapshot.asked or "main")
            replace_text(ref, snapshot.revision)

    def wrong(
        self,
        snapshot: Snapshot,
        *,
        read: Callable[[int], None] = lambda size: None,
    ) -> list[RemoteFile]:
        """Those of its files whose content is not what its hash says; they are taken away. Files
        that were found right before, and not touched since, are not read again; `read` is told of
        each block.
        """
        found = []
        for file in snapshot.files:
            path = self.pointer(snapshot, file)
            if self._is_verified(path, file):
                continue
            if digest_of(path, file, read) == file.blob:
                self.mark(path, file)
            else:
                self.drop(snapshot, file)
                found.append(file)
        return found

    def mark(self, path: Path, file: RemoteFile) -> None:
        """Note that this content is right."""
        found = path.stat()
        write_json(self._mark(file), {"size": found.st_size, "mtime_ns": found.st_mtime_ns})

    def drop(self, snapshot: Snapshot, file: RemoteFile) -> None:
        """Take a content away, with what links to it."""
        for path in (self.pointer(snapshot, file), self.blob(snapshot, file)):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def tidy(self, snapshot: Snapshot, *, whole: bool = False) -> None:
        """Take away what nobody goes on with: what a library was writing when its process was
        ended, and of a snapshot that is here as a `whole` what other ways have begun.
        """
        for file in snapshot.files:
            blob = self.blob(snapshot, file)
            for left in blob.parent.glob(
                f"{blob.name}.*" if whole else f"{blob.name}.*.incomplete"
            ):
                left.unlink(missing_ok=True)

    def free(self) -> int:
        """Bytes that may still be written."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return shutil.disk_usage(self.folder).free

    def _is_here(self, snapshot: Snapshot, file: RemoteFile) -> bool:
        try:
            return self.pointer(snapshot, file).stat().st_size == file.size
        except FileNotFoundError:
            pass
        try:
            here = self.blob(snapshot, file).stat().st_size == file.size
        except FileNotFoundError:
            return False
        if here:
            _link(self.blob(snapshot, file), self.pointer(snapshot, file))
        return here

    def _is_verified(self, path: Path, file: RemoteFile) -> bool:
        with contextlib.suppress(OSError, ValueError):
            found, noted = path.stat(), read_json(self._mark(file)) or {}
            return noted == {"size": found.st_size, "mtime_ns": found.st_mtime_ns}
        return False

    def _mark(self, file: RemoteFile) -> Path:
        return self.folder / ".verified" / file.blob


def new_hash(file: RemoteFile) -> Hash:
    """The hash that is this file's name, before its first byte."""
    if file.sha256:
        return hashlib.sha256()
    return hashlib.sha1(b"blob %d\0" % file.size)


def digest_of(path: Path, file: RemoteFile, read: Callable[[int], None] = lambda size: None) -> str:
    """The name that this content has in the cache; "" when there is none."""
    digest, buffer = new_hash(file), memoryview(bytearray(BLOCK))
    try:
        with path.open("rb", buffering=0) as reader:
            while size := reader.readinto(buffer):
                digest.update(buffer[:size])
                read(size)
    except FileNotFoundError:
        return ""
    return digest.hexdigest()


def needed(cache: Cache, missing: Iterable[Snapshot]) -> int:
    """Bytes that are still to be written for these snapshots."""
    total = 0
    for snapshot in missing:
        begun = 0
        for file in snapshot.files:
            with contextlib.suppress(FileNotFoundError):
                part = cache.blob(snapshot, file).with_suffix(".part")
                begun += min(file.size, part.stat().st_blocks * 512)
        total += max(0, snapshot.bytes - begun)
    return total


def _link(blob: Path, pointer: Path) -> None:
    """A relative link, as the library makes it; some network volumes know no links."""
    pointer.parent.mkdir(parents=True, exist_ok=True)
    unfinished = pointer.with_name(f".{pointer.name}.{os.getpid()}")
    unfinished.unlink(missing_ok=True)
    try:
        unfinished.symlink_to(os.path.relpath(blob, pointer.parent))
    except OSError:
        shutil.copyfile(blob, unfinished)
    unfinished.replace(pointer)
