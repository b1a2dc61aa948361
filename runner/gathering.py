"""Which waiting notices are sent now, alone or many as one; no clock and no network in here.

A kind of which more than AT_ONCE come within WINDOW seconds is gathered: a push of fifty files is
one message that says `started`, not fifty. The first few are not held back for that, beyond the
PAUSE that tells whether more are coming.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from runner.notice import Kind, Notice, digest
from runner.outbox import Letter

AT_ONCE = 3
PAUSE, GATHERING, WINDOW = 1.0, 15.0, 60.0


@dataclass(frozen=True)
class Message:
    """One notice to send, and the letters that it delivers."""

    notice: Notice
    letters: tuple[Letter, ...]


@dataclass
class Gatherer:
    """Decides for one place; told of each message that went out."""

    _sent: dict[Kind, list[float]] = field(default_factory=dict)  # a time for each letter

    def next(self, waiting: Sequence[Letter], now: float, *, last: bool = False) -> Message | None:
        """What to send now, None when nothing is due; `last`: nobody will ask again."""
        for letters in _by_kind(waiting):
            if last or self._is_due(letters, now):
                many = len(letters) > (AT_ONCE if last else self._room(letters[0].notice.kind, now))
                if many and len(letters) > 1:
                    notice = digest([letter.notice for letter in letters])
                    return Message(notice, tuple(letters))
                return Message(letters[0].notice, (letters[0],))
        return None

    def sent(self, message: Message, now: float) -> None:
        """This went out."""
        times = self._sent.setdefault(message.notice.kind, [])
        times += [now] * len(message.letters)

    def _is_due(self, letters: Sequence[Letter], now: float) -> bool:
        age = now - letters[0].t
        if len(letters) <= self._room(letters[0].notice.kind, now):
            return age >= PAUSE
        times = self._sent.get(letters[0].notice.kind, [])
        return age >= GATHERING and (not times or now - times[-1] >= GATHERING)

    def _room(self, kind: Kind, now: float) -> int:
        times = [t for t in self._sent.get(kind, []) if now - t < WINDOW]
        self._sent[kind] = times
        return max(0, AT_ONCE - len(times))


def _by_kind(waiting: Sequence[Letter]) -> Iterator[list[Letter]]:
    """The letters of each kind, oldest first; the kind that has waited longest first."""
    oldest = {letter.notice.kind: letter.t for letter in reversed(waiting)}
    ordered = sorted(waiting, key=lambda letter: (oldest[letter.notice.kind], letter.notice.kind))
    for _, letters in groupby(ordered, key=lambda letter: letter.notice.kind):
        yield sorted(letters, key=lambda letter: letter.t)
