"""Finding pushes by looking at branches."""

from __future__ import annotations

from pathlib import Path

from runner.push.changes import Push
from runner.push.event import push_event
from runner.push.rules import Rules
from tasks.watching import moved, tips
from tests.histories import MAIN, ZERO, History

A, B = "ab" * 20, "cd" * 20


def test_the_first_look_starts_nothing() -> None:
    """Else connecting a repository would train all that it holds."""
    assert moved(None, {MAIN: A}) == []


def test_a_branch_that_moved_is_a_push_and_a_new_one_is_a_first_push() -> None:
    """One that is gone or stayed where it was is none."""
    seen = {MAIN: A, "refs/heads/gone": A, "refs/heads/same": B}
    now = {MAIN: B, "refs/heads/new": A, "refs/heads/same": B}
    assert moved(seen, now) == [Push(MAIN, A, B), Push("refs/heads/new", ZERO, A)]


def test_the_event_is_the_one_that_a_hook_would_send() -> None:
    """So whoever has both starts nothing twice."""
    (push,) = moved({MAIN: A}, {MAIN: B})
    assert push_event("me/x", push, None)["id"] == push_event("me/x", Push(MAIN, A, B), [])["id"]


def test_only_branches_that_count_are_looked_at(tmp_path: Path) -> None:
    """No tags either."""
    history = History.new(tmp_path / "x")
    head = history.add("a")
    history.git("branch", "work")
    history.git("tag", "main2")
    assert tips(history.plain, Rules()) == {MAIN: head}
