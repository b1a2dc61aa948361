"""Sending notices: to a strict local Discord, and to nobody."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from apprise.plugins.discord import NotifyDiscord
from pydantic import SecretStr

from blocks.notifier import Answer, Notifier, begin, place_of, places
from runner.errors import TryAgain
from runner.notice import Kind, Notice, compose
from tests.emulators.discord import WEBHOOK, Emulator, Refused, check_message, running

TOKEN = "s3cr3t-t0ken"
URL = "discord://{}/{}".format(*WEBHOOK)


@pytest.fixture
def discord(monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    """The emulator in Discord's place: its host is built into Apprise's plugin."""
    with running() as emulator:
        monkeypatch.setattr(NotifyDiscord, "notify_url", emulator.url)
        yield emulator


def _notice(kind: Kind = "failed", **changes: Any) -> Notice:
    facts: dict[str, Any] = {
        "run": "3f0c6b1e", "task": "configs/toy.yml", "cost_usd": 0.5, "link": "http://x/y",
    }  # fmt: skip
    return compose(kind, **{**facts, **changes})


def _send(url: str, notice: Notice, attach: Path | None = None) -> Answer:
    return begin(url, notice, attach).get(timeout=120)


class _Log(logging.Handler):
    """What reaches the root logger; caplog listens to loggers that do not propagate as well."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.text = ""
        self.warnings: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.text += f"{record.getMessage()}\n"
        if record.levelno >= logging.WARNING:
            self.warnings.append(record.getMessage())


@pytest.fixture
def log() -> Iterator[_Log]:
    """The log of this process at debug level."""
    handler, root = _Log(), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield handler
    root.setLevel(level)
    root.removeHandler(handler)


@pytest.mark.parametrize(
    ("kind", "colour"),
    [("started", 0x3AA3E3), ("spike", 0xCACF29), ("completed", 0x3AA337), ("failed", 0xA32037)],
)
def test_discord_gets_an_embed_in_the_colour_of_the_kind(
    discord: Emulator, kind: Kind, colour: int
) -> None:
    """A plain discord:// URL is enough for title, body and colour."""
    notice = _notice(kind)
    assert _send(URL, notice) == Answer()
    [message] = discord.received
    [embed] = message["embeds"]
    assert (embed["title"], embed["description"]) == (notice.title, notice.body)
    assert embed["color"] == colour


@pytest.mark.parametrize("url", [URL, f"{URL}?format=text", "json://127.0.0.1:{port}/notify/x"])
def test_a_long_traceback_arrives_and_pings_nobody(discord: Emulator, url: str) -> None:
    """The strict emulator takes the notice as embed and as plain content (cases H59, H61)."""
    notice = _notice(
        reason="@everyone ``` <@&1234>",
        log="# Traceback\n" + "@here `<@12>`\n" * 400 + "ValueError: bad",
    )
    assert not _send(url.format(port=discord.server_port), notice).problem
    [message] = discord.received
    assert message["pings"] == []
    assert "ValueError: bad" in str(message)
    assert "fields" not in str(message)


@pytest.mark.parametrize(
    "message",
    [
        {"content": "x" * 2001},
        {"content": ""},
        {"embeds": [{"title": "x" * 257}]},
        {"embeds": [{"description": "x" * 4097}]},
        {"embeds": [{"description": "x" * 4000}, {"description": "x" * 2001}]},
        {"embeds": [{"title": "x", "author": {"name": "x", "url": ""}}]},
    ],
)
def test_the_emulator_is_as_strict_as_discord(message: dict[str, Any]) -> None:
    """A message that Discord refuses whole is refused here, so the tests above prove something."""
    with pytest.raises(Refused) as refusal:
        check_message(message, files=[])
    assert refusal.value.status == 400


def test_a_file_goes_along_and_a_missing_one_does_not_cost_the_notice(
    discord: Emulator, tmp_path: Path
) -> None:
    """The curve is attached when it is there."""
    picture = tmp_path / "curve #1.png"
    picture.write_bytes(b"PNG")
    assert not _send(URL, _notice(), picture).problem
    assert not _send(URL, _notice(), tmp_path / "missing.png").problem
    assert [bool(message.get("embeds")) for message in discord.received] == [True, False, True]
    assert discord.received[1]["files"] == [{"name": "curve #1.png", "size": 3}]


@pytest.mark.parametrize(
    ("url", "problem", "later"),
    [
        (f"discord://404/{TOKEN}", "HTTP 404", False),
        (f"discord://{WEBHOOK[0]}/{TOKEN}", "HTTP 401", False),
        (f"nothing://{TOKEN}", "not a URL that Apprise knows", False),
        (TOKEN, "not a URL that Apprise knows", False),
        (f"json://127.0.0.1:1/{TOKEN}", "refused or not reachable", True),
    ],
)
def test_a_failure_is_seen_and_names_no_url(
    discord: Emulator, log: _Log, url: str, problem: str, *, later: bool
) -> None:
    """By truthiness, since the result is no bool (case H60); what is worth another try is told
    from what is not.
    """
    assert _send(url, _notice()) == Answer(problem, later=later)
    assert TOKEN not in log.text
    assert discord.received == []


@pytest.mark.parametrize(
    ("status", "later", "after"), [(429, True, 7.5), (503, True, None), (400, False, None)]
)
def test_when_to_come_back_is_read_from_the_answer(
    discord: Emulator, status: int, after: float | None, *, later: bool
) -> None:
    """Apprise gives neither header nor body, but logs what the service said."""
    discord.faults = {"status": status, "times": 9, "retry_after": 7.5}
    url = f"json://127.0.0.1:{discord.server_port}/notify/x"
    assert _send(url, _notice()) == Answer(f"HTTP {status}", later, after)


def test_a_slow_discord_holds_up_nobody(discord: Emulator) -> None:
    """Sending begins at once; the answer comes when it comes."""
    discord.faults = {"hang": 1.0}
    began = time.monotonic()
    answer = begin(URL, _notice())
    assert time.monotonic() - began < 0.5
    assert answer.get(timeout=20) == Answer()


def test_an_error_inside_apprise_is_a_failed_delivery(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong while sending is told by its type and never raised."""

    def explode(*args: object) -> str:
        raise ValueError(URL)

    monkeypatch.setattr("blocks.notifier._send", explode)
    assert _send(URL, _notice()) == Answer("ValueError")


def test_the_block_keeps_its_urls_secret() -> None:
    """Prefect encrypts and stars the field, and a printed block shows none of it."""
    block = Notifier(urls=[SecretStr(URL)])
    assert Notifier.model_json_schema()["secret_fields"] == ["urls"]
    assert Notifier.get_block_type_slug() == "axolotl-notifier"
    assert WEBHOOK[1] not in repr(block)


def test_urls_come_from_the_environment_where_no_block_is_named() -> None:
    """AXR_NOTIFY_URLS holds any number, separated by white space."""
    assert places(None, f" {URL}\n{URL}?format=text ") == [URL, f"{URL}?format=text"]
    assert places(None, None) == places("", "  ") == []


def test_a_named_block_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The block's URLs replace those of the environment."""
    block = Notifier(urls=[SecretStr("json://block")])
    monkeypatch.setattr(Notifier, "load", lambda name, **_: block)
    assert places("team", "json://env") == ["json://block"]


def test_a_block_that_is_not_there_leaves_the_environment(
    monkeypatch: pytest.MonkeyPatch, log: _Log
) -> None:
    """A run does not end for want of a notifier; one warning says what happened."""

    def missing(name: str, **_: object) -> Notifier:
        raise ValueError(f"Unable to find block document named {name}")

    monkeypatch.setattr(Notifier, "load", missing)
    assert places("team", "json://env") == ["json://env"]
    assert log.warnings == ["Notifier block 'team' can't be loaded (ValueError)."]


def test_a_server_that_is_away_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says nothing about the block."""

    def away(name: str, **_: object) -> Notifier:
        raise httpx.ConnectError("refused")

    monkeypatch.setattr(Notifier, "load", away)
    with pytest.raises(TryAgain, match="'team' can't be read now"):
        places("team", "json://env")


def test_a_place_is_named_by_its_scheme_only() -> None:
    """The rest is a password."""
    assert place_of(f"discord://1/{TOKEN}", 1, 3) == "discord, URL 1 of 3"
    assert place_of(TOKEN, 3, 3) == "no scheme, URL 3 of 3"


def test_discords_own_address_of_a_webhook_works(discord: Emulator) -> None:
    """What Discord's settings page gives to copy."""
    address = "https://discord.com/api/webhooks/{}/{}".format(*WEBHOOK)
    assert _send(address, _notice()) == Answer()
    assert discord.received[0]["embeds"]
