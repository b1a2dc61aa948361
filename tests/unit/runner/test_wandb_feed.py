"""The feed that a run's parents append to, over their deaths."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.wandb_feed import Feed, State
from runner.wandb_run import WandbRun

RUN = WandbRun("axr-1", "toy", None, "n", ("a", "b"), "offline", "why")


def _open(folder: Path) -> Feed:
    feed = Feed(folder)
    feed.open(RUN, {"axolotl": {"seed": 42}})
    return feed


def test_a_run_without_wandb_leaves_no_file(tmp_path: Path) -> None:
    """Saying something costs a look for one file."""
    Feed(tmp_path).say("line", text="x")
    assert not list(tmp_path.iterdir())


def test_it_is_opened_once_and_read_as_it_was(tmp_path: Path) -> None:
    """A parent that is started again finds the W&B run of the first."""
    feed = Feed(tmp_path)
    assert feed.open(RUN, {"axolotl": {"seed": 42}})
    assert not feed.open(WandbRun("other", "x", None, "n", (), "shared"), {})
    assert feed.order() == (RUN, {"axolotl": {"seed": 42}})


def test_what_was_said_is_read_from_where_it_was_left(tmp_path: Path) -> None:
    """Bytes that were sent are not sent again."""
    feed = _open(tmp_path)
    feed.say("line", text="one")
    [(first, done)] = feed.unread(0)
    feed.note(State(done=done))
    feed.say("line", text="zwei ✓")
    assert first["text"] == "one"
    assert [said["text"] for said, _ in feed.unread(feed.state().done)] == ["zwei ✓"]
    assert not feed.is_sent


def test_a_line_that_a_killed_parent_left_unfinished_stops_nobody(tmp_path: Path) -> None:
    """The next parent writes on behind it."""
    feed = _open(tmp_path)
    with feed.lines.open("a") as file:
        file.write('{"kind": "line", "te')
    assert feed.unread(0) == []
    feed.say("line", text="lost with it")
    feed.say("line", text="kept")
    assert [said["kind"] for said, _ in feed.unread(0)] == ["broken", "line"]


def test_an_alert_and_an_end_are_known_as_said(tmp_path: Path) -> None:
    """So that a revived parent does not say them twice; after a resume the end is no end."""
    feed = _open(tmp_path)
    feed.say("alert", mark="1.spike.1", title="t", text="x", level="WARN")
    assert feed.has_alert("1.spike.1")
    assert not feed.has_alert("1.spike.2")
    feed.say("end", exit_code=0, summary={})
    assert feed.has_ended
    feed.say("line", text="resumed")
    assert not feed.has_ended


def test_no_secret_gets_into_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines, alerts, config: all that is sent lies here first."""
    monkeypatch.setenv("HF_TOKEN", "hf_AbCdEfGhIjKlMnOpQrStUvWxYz01234567")
    feed = Feed(tmp_path)
    feed.open(RUN, {"axolotl": {"hf_token": "hf_AbCdEfGhIjKlMnOpQrStUvWxYz01234567"}})
    feed.say("line", text="with hf_AbCdEfGhIjKlMnOpQrStUvWxYz01234567")
    kept = "".join(file.read_text() for file in feed.folder.iterdir())
    assert "hf_AbC" not in kept
    assert kept.count("[secret HF_TOKEN]") == 2
