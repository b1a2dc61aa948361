"""The postman: each place at its own pace, tried again, given up in the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

import pytest

from blocks.notifier import Answer
from deployments.postman import FIRST_PAUSE, MOST_AGE, MOST_SENDING, PLACES_EVERY, Postman
from runner.errors import TryAgain
from runner.notice import Kind, Notice, compose
from runner.outbox import Letter, Outbox

A, B = "discord://1/secret-a", "json://b/secret-b"
AWAY = Answer("HTTP 503", later=True)


@dataclass
class World:
    """Two places with scripted answers, and a clock."""

    box: Outbox
    now: float = 1000.0
    answers: dict[str, list[Answer | None]] = field(default_factory=dict)  # None: never answers
    sent: list[tuple[str, Notice, Path | None]] = field(default_factory=list)
    said: list[tuple[str | None, str]] = field(default_factory=list)
    urls: tuple[str, ...] = (A,)

    def begin(self, url: str, notice: Notice, picture: Path | None) -> SimpleQueue[Answer]:
        self.sent.append((url, notice, picture))
        script = self.answers.get(url, [])
        answer = script.pop(0) if script else Answer()
        queue: SimpleQueue[Answer] = SimpleQueue()
        if answer is not None:
            queue.put(answer)
        return queue

    def leave(self, *names: str, kind: Kind = "failed") -> None:
        for name in names:
            self.now += 0.001
            notice = compose(kind, run="3f0c6b1e", task=f"configs/{name}.yml")
            self.box.leave(Letter(name, notice, run="3f0c6b1e", picture=True, t=self.now))

    def tasks(self, url: str = A) -> list[str]:
        """Which notices were tried there, by the names of their task files."""
        return [
            n.title.rpartition("/")[2].removesuffix(".yml") for to, n, _ in self.sent if to == url
        ]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(Outbox(tmp_path))


@pytest.fixture
def postman(world: World) -> Postman:
    def urls(block: str | None) -> Sequence[str]:
        return world.urls

    return Postman(
        world.box,
        urls,
        begin=world.begin,
        picture=lambda letter: Path("curve.png"),
        complain=lambda run, text: world.said.append((run, text)),
        clock=lambda: world.now,
    )


def _go(world: World, postman: Postman, seconds: float) -> None:
    for _ in range(int(seconds * 2)):
        world.now += 0.5
        postman.look()


def test_a_notice_goes_out_with_its_picture_and_leaves_the_box(
    world: World, postman: Postman
) -> None:
    """Once, and nothing is said of it."""
    world.leave("a")
    _go(world, postman, 5)
    assert [(url, picture) for url, _, picture in world.sent] == [(A, Path("curve.png"))]
    assert world.box.letters() == []
    assert world.said == []


def test_too_many_requests_are_repeated_when_the_service_says(
    world: World, postman: Postman
) -> None:
    """429 with a time to wait: not before, and then it goes out."""
    world.answers[A] = [Answer("HTTP 429", later=True, after=30.0)]
    world.leave("a")
    _go(world, postman, 20)
    assert len(world.sent) == 1
    _go(world, postman, 20)
    assert len(world.sent) == 2
    assert world.box.letters() == []
    assert world.said == []


def test_a_place_that_is_away_is_asked_less_and_less(world: World, postman: Postman) -> None:
    """And given up after an hour, with one line in the run's log that holds no secret."""
    world.answers[A] = [AWAY] * 100
    world.leave("a")
    _go(world, postman, MOST_AGE + 10)
    assert 10 < len(world.sent) < 30
    assert world.said == [
        ("3f0c6b1e", "Notice 'failed' was not delivered (discord, URL 1 of 1: HTTP 503).")
    ]
    assert world.box.letters() == []


def test_what_is_refused_for_good_is_said_once_and_not_repeated(
    world: World, postman: Postman
) -> None:
    """H60: a webhook that is gone; the next notice has its own try."""
    world.answers[A] = [Answer("HTTP 404"), Answer()]
    world.leave("a")
    _go(world, postman, 5)
    world.leave("b")
    _go(world, postman, 5)
    assert world.tasks() == ["a", "b"]
    assert [text for _, text in world.said] == [
        "Notice 'failed' was not delivered (discord, URL 1 of 1: HTTP 404)."
    ]


def test_a_dead_place_holds_up_no_other_one(world: World, postman: Postman) -> None:
    """What one has taken is not sent there again while the other one is away."""
    world.urls = (A, B)
    world.answers[A] = [None, AWAY, AWAY]
    world.leave("a")
    _go(world, postman, 3)
    assert world.tasks(B) == ["a"]
    world.leave("b")
    _go(world, postman, 3)
    assert world.tasks(B) == ["a", "b"]
    assert world.tasks(A) == ["a"]  # still waiting for its first answer
    _go(world, postman, MOST_SENDING + 10 * FIRST_PAUSE)
    assert world.tasks(A)[-1] == "b"
    assert world.tasks(B) == ["a", "b"]
    assert world.box.letters() == []


def test_an_answer_that_comes_late_counts(world: World, postman: Postman) -> None:
    """A slow service gets no second copy."""
    late: SimpleQueue[Answer] = SimpleQueue()
    postman.begin = lambda url, notice, picture: late
    world.leave("a")
    _go(world, postman, MOST_SENDING / 2)
    late.put(Answer())
    _go(world, postman, 1)
    assert world.box.letters() == []


def test_fifty_starts_are_one_message(world: World, postman: Postman) -> None:
    """A digest counts for all of them, and has no picture."""
    world.leave(*map(str, range(50)), kind="started")
    _go(world, postman, 30)
    [(_, notice, picture)] = world.sent
    assert "50 runs: started" in notice.title
    assert picture is None
    assert world.box.letters() == []


def test_the_end_is_bounded_and_keeps_what_could_not_be_sent(
    world: World, postman: Postman
) -> None:
    """`down` sends what waits at once; a dead service costs it seconds, not the notice."""
    world.answers[A] = [Answer(), *[None] * 9]
    world.leave("a", "b")

    def sleep(seconds: float) -> None:
        world.now += seconds

    began = world.now
    postman.close(within=8.0, sleep=sleep)
    assert world.now - began <= 8.2
    assert [letter.name for letter in world.box.letters()] == ["b"]


def test_a_notice_without_a_place_is_said(world: World, postman: Postman) -> None:
    """A block that was deleted, or URLs that were taken away, while it waited."""
    world.urls = ()
    world.leave("a")
    _go(world, postman, 2)
    assert world.box.letters() == []
    assert world.said == [
        ("3f0c6b1e", "Notice 'failed' was not delivered (no place to send it to).")
    ]


def test_a_server_that_does_not_say_where_to_costs_no_notice(
    world: World, postman: Postman
) -> None:
    """Blocks are read from the Prefect server, which may be restarting."""

    def away(block: str | None) -> Sequence[str]:
        raise TryAgain("the notifier block 'team' can't be read now")

    there, postman.urls = postman.urls, away
    world.leave("a")
    _go(world, postman, 5)
    assert len(world.box.letters()) == 1
    postman.urls = there
    _go(world, postman, PLACES_EVERY + 5)
    assert world.tasks() == ["a"]
    assert world.said == []
