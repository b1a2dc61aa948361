"""The postman: sends what waits in the outbox, beside everything else that the keeper does.

- To each place one message at a time, in order; a place that is slow holds up no other one.
- A place that is away or asks to wait (429) is tried again, later each time, for MOST_AGE seconds
  after the notice was left; one that refuses a notice for good is not asked again for that one.
- What can't be delivered is said in the run's own log, once, and the place by its scheme only.
- At the end `close` sends what still waits for as long as it is given; the rest waits on the disk.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, SimpleQueue

from prefect.client.schemas.actions import LogCreate

from blocks.notifier import Answer, begin, place_of, places
from runner.errors import TryAgain
from runner.gathering import Gatherer, Message
from runner.notice import Notice
from runner.outbox import Letter, Outbox
from tasks.api import API_AWAY, api
from tasks.report import curve_so_far

EVERY = 0.5
# A service that has not answered by then will not: its thread is left to itself.
MOST_SENDING = 60.0
MOST_AGE = 3600.0
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 300.0
# Blocks may be changed in the UI at any time.
PLACES_EVERY = 60.0

Begin = Callable[[str, Notice, Path | None], SimpleQueue[Answer]]


@dataclass
class _Sending:
    message: Message
    answer: SimpleQueue[Answer]
    began: float


@dataclass
class _Place:
    """One Apprise URL; `name` may be said aloud."""

    url: str
    name: str
    gatherer: Gatherer = field(default_factory=Gatherer)
    sending: _Sending | None = None
    not_before: float = 0.0
    failures: int = 0
    finished: set[str] = field(default_factory=set)  # letters that it took, or refused for good
    problem: str = ""


@dataclass
class Postman:
    """`look` does what can be done without waiting; times are Unix seconds."""

    outbox: Outbox
    urls: Callable[[str | None], Sequence[str]]
    begin: Begin = begin
    picture: Callable[[Letter], Path | None] = lambda letter: None
    complain: Callable[[str | None, str], None] = lambda run, text: None
    clock: Callable[[], float] = time.time
    _places: dict[str, _Place] = field(default_factory=dict)
    _known: dict[str | None, tuple[float, list[str] | None]] = field(default_factory=dict)

    def look(self, *, last: bool = False) -> bool:
        """Take in answers, send what is due; False when nothing waits any more.

        `last`: nothing is held back for others of its kind to come.
        """
        now = self.clock()
        letters = self.outbox.letters()
        waiting: dict[str, list[Letter]] = {}
        for letter in letters:
            for url in self._urls(letter.block, now) or ():
                waiting.setdefault(url, []).append(letter)
        for url, theirs in waiting.items():
            self._serve(self._places[url], theirs, now, last)
        left = [letter for letter in letters if not self._is_finished(letter, now)]
        for place in self._places.values():
            place.finished &= {letter.name for letter in left}
        return bool(left)

    def run(self, stop: threading.Event) -> None:
        """Look until told to stop; a bug or a full disk costs one look."""
        while not stop.wait(EVERY):
            try:
                self.look()
            except Exception as error:
                print(f"postman: {type(error).__name__}: {error}", flush=True)

    def close(self, within: float, sleep: Callable[[float], None] = time.sleep) -> None:
        """Send what still waits, for so many seconds at most."""
        until = self.clock() + within
        while self.look(last=True) and self.clock() < until:
            sleep(0.1)

    def _urls(self, block: str | None, now: float) -> list[str] | None:
        """Where notices for this block go; None while that can't be known."""
        read, urls = self._known.get(block, (float("-inf"), None))
        if now - read > PLACES_EVERY:
            try:
                urls = list(dict.fromkeys(self.urls(block)))
            except TryAgain as away:  # what was known holds
                print(f"postman: {away}", flush=True)
            self._known[block] = (now, urls)
            named = urls or []
            for number, url in enumerate(named, 1):
                self._places.setdefault(url, _Place(url, place_of(url, number, len(named))))
        return urls

    def _serve(self, place: _Place, letters: list[Letter], now: float, last: bool) -> None:
        if place.sending:
            self._take_answer(place, place.sending, now)
        if place.sending or now < place.not_before:
            return
        waiting = [letter for letter in letters if letter.name not in place.finished]
        message = place.gatherer.next(waiting, now, last=last)
        if message is None:
            return
        only = message.letters[0] if len(message.letters) == 1 else None
        picture = self.picture(only) if only and only.picture else None
        place.sending = _Sending(message, self.begin(place.url, message.notice, picture), now)

    def _take_answer(self, place: _Place, sending: _Sending, now: float) -> None:
        try:
            answer = sending.answer.get_nowait()
        except Empty:
            if now - sending.began < MOST_SENDING:
                return
            answer = Answer("no answer in time", later=True)
        place.sending = None
        if not answer.problem:
            place.gatherer.sent(sending.message, now)
            place.failures = 0
        if answer.later:
            pause = min(FIRST_PAUSE * 2**place.failures, LONGEST_PAUSE)
            place.not_before = now + max(pause, answer.after or 0.0)
            place.failures += 1
            place.problem = answer.problem
            return
        for letter in sending.message.letters:
            place.finished.add(letter.name)
            if answer.problem:
                self._say(letter, f"{place.name}: {answer.problem}")

    def _is_finished(self, letter: Letter, now: float) -> bool:
        """Whether a letter is delivered, refused or too old; then it is taken out."""
        urls = self._urls(letter.block, now)
        known = [self._places[url] for url in urls or ()]
        left = [place for place in known if letter.name not in place.finished]
        if urls == []:
            self._say(letter, "no place to send it to")
        elif (left or urls is None) and now - letter.t > MOST_AGE:
            told = [f"{place.name}: {place.problem or 'no answer'}" for place in left]
            self._say(letter, "; ".join(told) or f"block {letter.block!r} can't be read")
        elif left or urls is None:
            return False
        self.outbox.remove(letter)
        return True

    def _say(self, letter: Letter, problem: str) -> None:
        self.complain(letter.run, f"Notice {letter.notice.kind!r} was not delivered ({problem}).")


def postman(outbox: Outbox) -> Postman:
    """The keeper's: places from the environment and from blocks, complaints in the runs' logs."""
    return Postman(outbox, _urls_of, picture=_picture, complain=_complain)


def _urls_of(block: str | None) -> list[str]:
    return places(block, os.environ.get("AXR_NOTIFY_URLS"))


def _picture(letter: Letter) -> Path | None:
    if letter.curve and Path(letter.curve).is_file():
        return Path(letter.curve)
    try:
        return curve_so_far(letter.run) if letter.run else None
    except Exception as error:  # a notice without a picture is better than none
        print(f"postman: no picture: {type(error).__name__}: {error}", flush=True)
        return None


def _complain(run: str | None, text: str) -> None:
    print(f"postman: {text}", flush=True)
    if run is None:
        return
    entry = LogCreate.model_validate(
        {
            "name": "axolotl_runner.notices",
            "level": logging.WARNING,
            "message": text,
            "timestamp": datetime.now(UTC),
            "flow_run_id": run,
        }
    )
    try:
        api().create_logs([entry])
    except API_AWAY:
        return  # it stands in the keeper's log
