"""Many files over many connections: each connection takes the next piece that is missing.

huggingface_hub 2.4 reads a file over one connection, and begins anew after a break (its unfinished
file is deleted), so that a limit for each connection makes a large file slow and a broken transfer
long. Here all connections work until the last piece, pieces survive, and the hash is taken while
the rest still comes.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pod.fetch.cache import Cache
from pod.fetch.parts import LEAST_PIECE, Part, Piece, piece_size
from pod.fetch.snapshot import RemoteFile, Snapshot
from pod.fetch.source import Source
from pod.fetch.tally import Tally
from pod.fetch.troubles import Busy, Corrupt

# As many as `aria2c -x16 -s16` makes for each of the five files that it fetches at once.
CONNECTIONS, MOST_CONNECTIONS = 16, 80
BUFFER = 256 * 1024
TRIES = 6  # of a piece, without a byte between them
FIRST_WAIT_S, MOST_WAIT_S = 0.5, 120.0
HASHERS = min(4, os.cpu_count() or 1)


@dataclass
class _Open:
    """A file in work; `again` when its content was wrong once already."""

    snapshot: Snapshot
    part: Part
    again: bool = False


class Ranges:
    """Fetches what is missing of some snapshots into the cache."""

    def __init__(
        self,
        cache: Cache,
        source: Source,
        tally: Tally,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cache, self._source, self._tally = cache, source, tally
        self._sleep = sleep
        self._turn = threading.Condition()
        self._pieces: deque[tuple[_Open, Piece]] = deque()
        self._hashes: deque[_Open] = deque()
        self._begun: list[_Open] = []
        self._left = 0  # files that are not kept yet
        self._failed: BaseException | None = None

    def fetch(self, missing: Sequence[Snapshot]) -> None:
        """All files of these snapshots; raises the first trouble that does not pass."""
        files = {
            self._cache.blob(snapshot, file): (snapshot, file)
            for snapshot in missing
            for file in snapshot.files
        }
        large = sum(file.size > LEAST_PIECE for _, file in files.values())
        connections = max(CONNECTIONS, min(MOST_CONNECTIONS, CONNECTIONS * large))
        size = piece_size(sum(file.size for _, file in files.values()), connections)
        self._left = len(files)
        for snapshot, file in files.values():
            self._begin(snapshot, file, size)
        threads = [
            threading.Thread(target=self._guarded, args=(work,), daemon=True)
            for work in [self._read_pieces] * connections + [self._take_hashes] * HASHERS
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failed is not None:
            raise self._failed

    def _begin(self, snapshot: Snapshot, file: RemoteFile, size: int, again: bool = False) -> None:
        part = Part(file, self._cache.blob(snapshot, file), size)
        part.open()
        opened = _Open(snapshot, part, again)
        self._tally.came(part.bytes_here, here=True)
        with self._turn:
            self._pieces.extend((opened, piece) for piece in part.missing())
            self._hashes.append(opened)
            self._begun.append(opened)
            self._turn.notify_all()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        with self._turn:
            self._failed = self._failed or error
            self._turn.notify_all()
        for opened in self._begun:
            opened.part.close()

    def _over(self) -> bool:
        return self._left == 0 or self._failed is not None

    def _read_pieces(self) -> None:
        buffer = memoryview(bytearray(BUFFER))
        while True:
            with self._turn:
                while not self._pieces and not self._over():
                    self._turn.wait()
                if self._over():
                    return
                opened, piece = self._pieces.popleft()
            self._read_piece(opened, piece, buffer)

    def _read_piece(self, opened: _Open, piece: Piece, buffer: memoryview) -> None:
        """A broken answer is gone on with where it broke."""
        at, tries = piece.start, 0
        while at < piece.end:
            before = at
            try:
                with self._source.read(opened.snapshot, opened.part.file, at, piece.end) as answer:
                    while at < piece.end:
                        size = answer.readinto(buffer[: min(BUFFER, piece.end - at)])
                        if not size:
                            raise ConnectionError("the answer ends too early")
                        opened.part.write(at, buffer[:size])
                        at += size
                        self._tally.came(size, file=opened.part.file.path)
                        if self._failed is not None:
                            return
            except Busy as busy:
                tries = 0 if at > before else tries + 1
                if tries >= TRIES or self._failed is not None:
                    raise
                self._wait(busy, tries)
        opened.part.done(piece)

    def _wait(self, busy: Busy, tries: int) -> None:
        usual = FIRST_WAIT_S * 2 ** max(0, tries - 1)
        seconds = min(MOST_WAIT_S, usual if busy.after is None else busy.after)
        with self._tally.waiting(seconds if busy.after else 0.0):
            self._sleep(seconds)

    def _take_hashes(self) -> None:
        while True:
            with self._turn:
                while not self._hashes and not self._over():
                    self._turn.wait()
                if self._over():
                    return
                opened = self._hashes.popleft()
            self._take_hash(opened)

    def _take_hash(self, opened: _Open) -> None:
        part, file = opened.part, opened.part.file
        digest = part.digest(self._tally.checked)
        if self._failed is not None:
            return
        if digest == file.blob:
            part.keep()
            part.release()
            self._cache.mark(part.blob, file)
            self._cache.finish(opened.snapshot.only([file]))
            with self._turn:
                self._left -= 1
                self._turn.notify_all()
            return
        part.forget()
        part.release()
        self._tally.came(-file.size, here=True)
        if opened.again:
            raise Corrupt(f"{file.path} of {opened.snapshot.label} came twice with a wrong content")
        self._tally.note(f"{file.path}: its content was wrong, it is fetched again")
        self._begin(opened.snapshot, file, part.size_of_pieces, again=True)
