"""A large file on its way, in pieces that come in any order and survive whoever fetches them.

    <etag>.part    the content, with holes
    <etag>.pieces  {size, piece} on its first line, then the number of each piece that is there

A piece's number is written after its bytes. What a machine's crash leaves is found by the hash,
which follows the pieces from the first on while the rest still comes.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from pod.fetch.cache import new_hash
from pod.fetch.snapshot import RemoteFile

LEAST_PIECE, MOST_PIECE = 512 * 1024, 16 * 1024 * 1024
HASH_BLOCK = 1024 * 1024


class Piece(NamedTuple):
    """A range of bytes, the last one not included."""

    number: int
    start: int
    end: int


def piece_size(total: int, connections: int) -> int:
    """So large that a request more costs little, so small that all connections end together."""
    return max(LEAST_PIECE, min(MOST_PIECE, total // (connections * 16)))


class Part:
    """One file and its pieces; `open` it first. Threads may write different pieces at once."""

    def __init__(self, file: RemoteFile, blob: Path, piece: int) -> None:
        self.file, self.blob = file, blob
        self.path, self.noted = blob.with_suffix(".part"), blob.with_suffix(".pieces")
        self.size_of_pieces = piece
        self._have: set[int] = set()
        self._changed = threading.Condition()
        self._closed = False

    def open(self) -> None:
        """Go on where an earlier fetcher has ended, or begin."""
        self.blob.parent.mkdir(parents=True, exist_ok=True)
        self._have = self._read()
        begun = bool(self._have) and self.path.exists()
        flags = os.O_RDWR | os.O_CREAT | (0 if begun else os.O_TRUNC)
        self._content = os.open(self.path, flags, 0o644)
        if not begun:
            self._have = set()
            head = {"size": self.file.size, "piece": self.size_of_pieces}
            self.noted.write_text(json.dumps(head) + "\n")
        self._notes = os.open(self.noted, os.O_WRONLY | os.O_APPEND)

    def missing(self) -> list[Piece]:
        """The pieces that are to come, in order."""
        return [self.piece(n) for n in range(self.count) if n not in self._have]

    @property
    def count(self) -> int:
        return -(-self.file.size // self.size_of_pieces)

    @property
    def bytes_here(self) -> int:
        """Of the pieces that are here."""
        return sum(piece.end - piece.start for piece in map(self.piece, self._have))

    def piece(self, number: int) -> Piece:
        start = number * self.size_of_pieces
        return Piece(number, start, min(start + self.size_of_pieces, self.file.size))

    def write(self, at: int, data: memoryview) -> None:
        """Bytes of a piece; it counts when it is `done`."""
        while data:
            written = os.pwrite(self._content, data, at)
            at, data = at + written, data[written:]

    def done(self, piece: Piece) -> None:
        """All bytes of this piece are written."""
        os.write(self._notes, b"%d\n" % piece.number)
        with self._changed:
            self._have.add(piece.number)
            self._changed.notify_all()

    def digest(self, read: Callable[[int], None]) -> str:
        """The hash of the whole, taken piece by piece as they come; "" when it is closed before."""
        digest, buffer = new_hash(self.file), memoryview(bytearray(HASH_BLOCK))
        for number in range(self.count):
            with self._changed:
                while number not in self._have and not self._closed:
                    self._changed.wait(1.0)
                if self._closed:
                    return ""
            piece = self.piece(number)
            at = piece.start
            while at < piece.end:
                size = os.preadv(self._content, [buffer[: min(HASH_BLOCK, piece.end - at)]], at)
                if not size:
                    return ""
                digest.update(buffer[:size])
                at += size
                read(size)
        return digest.hexdigest()

    def keep(self) -> None:
        """It is whole and right: from now on it is the blob."""
        os.truncate(self._content, self.file.size)
        self.path.replace(self.blob)
        self.noted.unlink(missing_ok=True)

    def forget(self) -> None:
        """Begin anew: what is here is not what it should be."""
        for path in (self.path, self.noted):
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of the files; who waits for a piece gives up."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()

    def release(self) -> None:
        """Close the descriptors, when no thread writes any more."""
        for descriptor in (self._content, self._notes):
            os.close(descriptor)

    def _read(self) -> set[int]:
        """The pieces of an earlier fetcher, whose size of pieces is taken over."""
        try:
            head, *lines = self.noted.read_text().split("\n")
            found = json.loads(head)
            size, piece = int(found["size"]), int(found["piece"])
        except (OSError, ValueError, KeyError, TypeError):
            return set()
        if size != self.file.size or piece <= 0:
            return set()
        self.size_of_pieces = piece
        # The last line may be half of one.
        return {int(line) for line in lines[:-1] if line.isdigit() and int(line) < self.count}
