"""Many notices of one kind are one message."""

from __future__ import annotations

from typing import get_args

import pytest

from runner.gathering import AT_ONCE, GATHERING, PAUSE, WINDOW, Gatherer
from runner.notice import LENGTH, Kind, compose, digest
from runner.outbox import Letter

LINK = "http://127.0.0.1:4200/runs/flow-run/3f0c6b1e-8a41-4b7e-9d0e-0a1b2c3d4e5f"


def _letters(count: int, kind: Kind = "started", t: float = 0.0) -> list[Letter]:
    return [
        Letter(
            f"{kind} {t} {number}",
            compose(kind, run=f"{number:08}-90ab", task=f"configs/{number}.yml", link=LINK),
            t=t + number * 0.01,
        )
        for number in range(count)
    ]


def _sent(waiting: list[Letter], until: float, gatherer: Gatherer | None = None) -> list[int]:
    """How many letters each message has that goes out up to a moment, looking each half second."""
    gatherer = gatherer or Gatherer()
    left, sizes = list(waiting), []
    for half_seconds in range(int(until * 2) + 1):
        here = [letter for letter in left if letter.t <= half_seconds / 2]
        message = gatherer.next(here, half_seconds / 2)
        if message:
            gatherer.sent(message, half_seconds / 2)
            sizes.append(len(message.letters))
            left = [letter for letter in left if letter not in message.letters]
    return sizes


def test_a_push_of_fifty_files_is_one_message() -> None:
    """Not fifty times `started`."""
    assert _sent(_letters(50), until=60) == [50]


def test_a_few_go_out_alone_and_at_once() -> None:
    """One run's notices are never held back for others that do not come."""
    assert _sent(_letters(AT_ONCE), until=PAUSE + 2) == [1] * AT_ONCE


def test_what_goes_on_coming_is_gathered_again_and_again() -> None:
    """One message each quarter of a minute, and single ones again after a quiet minute."""
    gatherer = Gatherer()
    many = [letter for second in range(60) for letter in _letters(2, t=float(second))]
    sizes = _sent(many, until=80, gatherer=gatherer)
    assert sum(sizes) == len(many)
    assert len(sizes) <= AT_ONCE + 80 / GATHERING
    late = _letters(1, t=90 + WINDOW)
    assert gatherer.next(late, late[0].t + PAUSE) is not None


def test_kinds_are_gathered_apart() -> None:
    """A failure among many starts is a message of its own, at once."""
    waiting = [*_letters(20), *_letters(1, "failed")]
    message = Gatherer().next(waiting, PAUSE + 1)
    assert message is not None
    assert message.notice.kind == "failed"


def test_nothing_is_held_back_at_the_end() -> None:
    """When the control side goes down, what waits is sent now."""
    message = Gatherer().next(_letters(10), 0.0, last=True)
    assert message is not None
    assert len(message.letters) == 10


@pytest.mark.parametrize("kind", get_args(Kind))
@pytest.mark.parametrize("count", [2, 50, 5000])
def test_a_digest_fits_and_names_the_runs(kind: Kind, count: int) -> None:
    """Within Discord's limit; what has no room is counted."""
    notice = digest([letter.notice for letter in _letters(count, kind)])
    assert len(notice.title) + len(notice.body) < LENGTH
    assert f"{count} runs: {kind}" in notice.title
    assert "http://127.0.0.1:4200/runs\n`00000000` configs/0.yml" in notice.body
    assert ("and" in notice.body and "more" in notice.body) == (count > 2)
    assert notice.notify_type == _letters(1, kind)[0].notice.notify_type
