"""What a fetching process has done so far, counted by its threads and told to its parent.

Each word is one line of JSON on standard output:

    {bytes, work, file, wait}   `bytes` of the files are here; `work` counts bytes that came, and
                                that were checked, in this process; nothing can come for `wait` s
    {note}                      for people
    {done} or {error, message}  the last one
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

EVERY = 0.5  # seconds


class Tally:
    """Counts; `say` takes a word out."""

    def __init__(
        self, say: Callable[[str], None], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say, self._clock = say, clock
        self._lock = threading.Lock()
        self.bytes = 0
        self.work = 0
        self._file = ""
        self._waiting_until = 0.0

    def came(self, size: int, *, file: str = "", here: bool = False) -> None:
        """Bytes of a file came, or were `here` already."""
        with self._lock:
            self.bytes += size
            self.work += 0 if here else size
            self._file = file or self._file

    def checked(self, size: int) -> None:
        """Bytes were read for their hash."""
        with self._lock:
            self.work += size

    @contextmanager
    def waiting(self, seconds: float) -> Iterator[None]:
        """Nothing can come for so long, because the other side says so."""
        with self._lock:
            self._waiting_until = max(self._waiting_until, self._clock() + seconds)
        yield

    def note(self, text: str) -> None:
        """Tell people."""
        self._word(note=text)

    def tell(self) -> None:
        """How it stands."""
        with self._lock:
            wait = max(0.0, self._waiting_until - self._clock())
            word = {"bytes": self.bytes, "work": self.work, "file": self._file, "wait": wait}
        self._word(**word)

    def last(self, **word: object) -> None:
        """The last word."""
        self.tell()
        self._word(**word)

    def keep_telling(self) -> None:
        """Tell every EVERY seconds, in a thread that ends with the process."""
        threading.Thread(target=self._tell_on, name="tally", daemon=True).start()

    def _tell_on(self) -> None:
        while True:
            time.sleep(EVERY)
            self.tell()

    def _word(self, **word: object) -> None:
        with self._lock:
            self._say(json.dumps(word))
