"""Notices that wait: nothing is lost between processes, and nothing piles up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runner import outbox
from runner.notice import compose
from runner.outbox import Letter, Outbox


def _letter(name: str, t: float = 1.0) -> Letter:
    notice = compose("started", run="3f0c6b1e", task="configs/a.yml", cost_usd=0.5)
    return Letter(name, notice, run="3f0c6b1e", block="team", picture=True, curve="/x.png", t=t)


def test_a_letter_read_back_is_the_one_that_was_left(tmp_path: Path) -> None:
    """By another process, oldest first, for its owner's eyes only."""
    left = Outbox(tmp_path / "outbox")
    left.leave(_letter("b", t=2.0))
    left.leave(_letter("a", t=1.0))
    assert Outbox(tmp_path / "outbox").letters() == [_letter("a", 1.0), _letter("b", 2.0)]
    assert (tmp_path / "outbox").stat().st_mode & 0o077 == 0
    left.remove(_letter("a"))
    assert [letter.name for letter in left.letters()] == ["b"]


def test_the_same_letter_waits_once(tmp_path: Path) -> None:
    """A parent that is revived between leaving a notice and marking it as told leaves it again."""
    box = Outbox(tmp_path)
    box.leave(_letter("run told.started", t=1.0))
    box.leave(_letter("run told.started", t=5.0))
    assert [letter.t for letter in box.letters()] == [5.0]


def test_a_full_outbox_lets_the_oldest_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A control side without a postman does not fill the disk."""
    monkeypatch.setattr(outbox, "MOST", 3)
    box = Outbox(tmp_path)
    for number in range(5):
        box.leave(_letter(str(number), t=number))
    assert len(box.letters()) == 3
    assert box.letters()[-1].name == "4"


def test_a_file_that_is_no_letter_is_thrown_away(tmp_path: Path) -> None:
    """Half a file, or one of another version, stops nobody."""
    (tmp_path / "half.json").write_text('{"name": "x"')
    (tmp_path / "other.json").write_text(json.dumps({"name": "x", "notice": {}}))
    (tmp_path / "draft.123").write_text("")
    assert Outbox(tmp_path).letters() == []
    assert not list(tmp_path.glob("*.json"))


def test_an_outbox_that_nobody_has_used_is_empty(tmp_path: Path) -> None:
    """Looking makes no folder."""
    assert Outbox(tmp_path / "none").letters() == []
    assert not (tmp_path / "none").exists()
