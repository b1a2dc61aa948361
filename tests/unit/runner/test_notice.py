"""What notices say, and what they may never do to a Discord server."""

from __future__ import annotations

import re
from typing import Any

import pytest

from runner.notice import (
    LENGTH,
    Kind,
    Notice,
    compose,
    dollars,
    first_and_last,
    harmless,
    split_long_lines,
)

LINK = "http://127.0.0.1:4200/runs/flow-run/3f0c6b1e-8a41-4b7e-9d0e-0a1b2c3d4e5f"
TRACEBACK = "Traceback (most recent call last):\n" + '  File "train.py", line 1\n' * 180
PINGS = re.compile(r"@everyone|@here|<@[!&]?\d+>|<#\d+>|<![a-z]+>")


def _notice(kind: Kind = "failed", **changes: Any) -> Notice:
    facts: dict[str, Any] = {
        "run": "3f0c6b1e-8a41-4b7e-9d0e-0a1b2c3d4e5f",
        "task": "configs/toy.yml",
        "reason": "loss rose 5x at step 21",
        "cost_usd": 1.234,
        "link": LINK,
    }
    return compose(kind, **{**facts, **changes})


@pytest.mark.parametrize(
    ("kind", "notify_type"),
    [
        ("started", "info"),
        ("budget", "warning"),
        ("spike", "warning"),
        ("resumed", "info"),
        ("completed", "success"),
        ("failed", "failure"),
    ],
)
def test_each_kind_has_its_colour_and_its_word(kind: Kind, notify_type: str) -> None:
    """The title names state and task; the type gives the colour."""
    notice = _notice(kind)
    assert notice.notify_type == notify_type
    assert f"{kind}: configs/toy.yml" in notice.title


@pytest.mark.parametrize("log", ["", TRACEBACK, "x" * 4500, "y\n" * 4500, "@here " * 3000])
@pytest.mark.parametrize("task", ["configs/toy.yml", "configs/" + "long/" * 200 + "toy.yml"])
@pytest.mark.parametrize("reason", ["", "short", "long " * 2000, "`" * 3000])
def test_a_notice_fits_and_says_the_essential_first(log: str, task: str, reason: str) -> None:
    """A 4500-character traceback does not cost the notice (case H59)."""
    notice = _notice(log=log, task=task, reason=reason, outcome="loss_spike")
    whole = f"{notice.title}\n{notice.body}"
    assert len(whole) <= LENGTH
    for fact in ("3f0c6b1e-8a41-4b7e-9d0e-0a1b2c3d4e5f", "loss spike", "$1.23", LINK):
        assert fact in whole[:300]
    assert notice.title.endswith("toy.yml")


def test_of_a_long_log_the_beginning_and_the_error_are_shown() -> None:
    """The last line names the error, the first where it began."""
    body = _notice(log=f"starting\n{TRACEBACK}RuntimeError: boom").body
    assert "```\nstarting\n" in body
    assert re.search(r"\n… \d+ lines left out …\n", body)
    assert body.endswith("\nRuntimeError: boom\n```")


def test_of_a_progress_bar_only_its_last_state_is_shown() -> None:
    """2 MB of carriage returns do not push the traceback out (case H58)."""
    bar = "".join(f"\r{percent / 1000:.3f}% |#####     |" for percent in range(100_000))
    body = _notice(log=f"{bar}\r\nTraceback\n  line\nValueError: bad").body
    assert "```\n99.999% |#####     |\nTraceback\n  line\nValueError: bad\n```" in body


@pytest.mark.parametrize(
    "text",
    [
        "error: @everyone <@&1234>",
        "@here @EVERYONE",
        "<@12> <@!12> <#34>",
        "<!channel> <!here>",
        "@\x00everyone <\x1b[0m@12>",
    ],
)
def test_nothing_from_outside_pings_anybody(text: str) -> None:
    """Mentions in every field are broken, also those that appear as control characters go."""
    notice = _notice(run=text, task=text, reason=text, facts={text: text}, log=text)
    assert not PINGS.search(notice.title + notice.body)
    words = re.findall(r"[a-z]+|\d+", text.lower().replace("[0m", ""))
    readable = notice.body.replace("\u200b", "").lower()
    assert all(word in readable for word in words)


def test_code_blocks_are_closed_whatever_the_log_holds() -> None:
    """Triple backticks in a log or a reason end no block (case H61)."""
    notice = _notice(reason="```x", task="a```b", log="one\n```\n````two")
    assert notice.body.count("```") == 2
    assert notice.body.endswith("\n```")
    assert "```" not in notice.title


def test_control_characters_are_dropped() -> None:
    """Colours, bells and bidirectional marks do not reach the reader."""
    assert harmless("\x1b[31mred\x1b[0m\x07 \u202egnp\udcff\ttab\n") == "red gnp\ttab\n"


def test_facts_are_short_lines_of_their_own() -> None:
    """Each fact is a name and a value; the cost may be unknown yet."""
    body = _notice("resumed", facts={"attempt": "2 of 3", "from step": 15}, cost_usd=None).body
    assert body.splitlines()[2:] == ["attempt: 2 of 3", "from step: 15"]
    assert "cost not known yet" in body.splitlines()[0]


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "$0.00"),
        (0.00012, "$0.0001"),
        (0.0123, "$0.0123"),
        (1.2, "$1.20"),
        (1234.5, "$1,234.50"),
    ],
)
def test_money_is_written_for_people(amount: float, text: str) -> None:
    """Cents, and fractions of a cent only where they matter."""
    assert dollars(amount) == text


def test_long_lines_are_cut_with_a_mark_and_carriage_returns_split() -> None:
    """One line of megabytes becomes many short ones, and the traceback stays whole (case H58)."""
    bar = "".join(f"\r{step:07d}/1000000" for step in range(120_000))
    lines = split_long_lines(f"{bar}\r\n{'x' * 5000}\nValueError: bad", most=100)
    assert max(map(len, lines)) == 100
    assert lines[-2].endswith("…[4900 characters cut]")
    assert lines[-1] == "ValueError: bad"
    assert "0119999/1000000" in lines


def test_a_log_that_fits_is_shown_whole() -> None:
    """No mark where nothing is left out."""
    assert first_and_last(["a", "b"], room=4) == ["a", "b"]
    assert first_and_last(["a" * 50] * 9, room=90) == ["… 8 lines left out …", "a" * 50]
