"""The lines that a pod's container and host have said, and who waits for the next.

An event's id is `<time>/<number of the line>`; a reader resumes after that number, or, when all it
has is a time, with the first line of that time or later.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.emulators.clock import Clock, read_time, write_time

KEPT = 20_000
KEEP_ALIVE_S = 15.0


@dataclass(frozen=True)
class Line:
    """One line; `number` counts from 1 through all sources of the pod."""

    number: int
    time: float
    source: str
    text: str

    def event(self) -> str:
        """As Server-Sent Events have it."""
        moment = write_time(self.time)
        data = json.dumps({"ts": moment, "source": self.source, "line": self.text})
        return f"id: {moment}/{self.number:012d}\ndata: {data}\n\n"


class Log:
    """All lines of one pod; they also go to a file that outlives it."""

    def __init__(self, clock: Clock, file: Path) -> None:
        self._clock = clock
        self._file = file
        self._lines: deque[Line] = deque(maxlen=KEPT)
        self._count = 0
        self._closed = False
        self._changed = threading.Condition()

    def add(self, source: str, text: str) -> None:
        """A line, now."""
        with self._changed:
            self._count += 1
            self._lines.append(Line(self._count, self._clock.now(), source, text))
            with self._file.open("a") as file:
                file.write(f"{source}: {text}\n")
            self._changed.notify_all()

    def close(self) -> None:
        """No more lines will come: readers end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def texts(self, source: str = "container") -> list[str]:
        """The lines of one source that are still kept."""
        with self._changed:
            return [line.text for line in self._lines if line.source == source]

    def follow(
        self, source: str | None, tail: int, since: str | None, last_event: str | None
    ) -> Iterator[str]:
        """Events from where the reader wants to begin until the log is closed; comments between.

        ValueError when a time is none.
        """
        with self._changed:
            kept = [line for line in self._lines if source in (None, line.source)]
            if last_event and "/" in last_event:
                seen = int(last_event.rpartition("/")[2])
            elif last_event or since:
                start = read_time(last_event or since or "")
                seen = max((line.number for line in kept if line.time < start), default=0)
            else:
                seen = self._count if tail == 0 else 0
                if len(kept) > tail > 0:
                    seen = kept[-tail].number - 1
        return self._events(source, seen)

    def _events(self, source: str | None, seen: int) -> Iterator[str]:
        while True:
            with self._changed:
                if self._count <= seen and not self._closed:
                    self._changed.wait(KEEP_ALIVE_S)
                fresh = [line for line in self._lines if line.number > seen]
                closed = self._closed
            seen = fresh[-1].number if fresh else seen
            events = [line.event() for line in fresh if source in (None, line.source)]
            yield "".join(events) or ": keep-alive\n\n"
            if closed and not fresh:
                return
