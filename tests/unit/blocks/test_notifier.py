"""Sending notices: to a strict local Discord, and to nobody."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apprise.plugins.discord import NotifyDiscord
from pydantic import SecretStr

from blocks.notifier import NoNotifier, Notifier, deliver_to, is_usable, load_notifier
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
    assert deliver_to([URL], notice) is True
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
    assert deliver_to([url.format(port=discord.server_port)], notice)
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
    assert deliver_to([URL], _notice(), picture)
    assert deliver_to([URL], _notice(), tmp_path / "missing.png")
    assert [bool(message.get("embeds")) for message in discord.received] == [True, False, True]
    assert discord.received[1]["files"] == [{"name": "curve #1.png", "size": 3}]


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        (f"discord://404/{TOKEN}", "discord, URL 2 of 2: HTTP 404"),
        (f"discord://{WEBHOOK[0]}/{TOKEN}", "discord, URL 2 of 2: HTTP 401"),
        (f"nothing://{TOKEN}", "nothing, URL 2 of 2: not a URL that Apprise knows"),
        (TOKEN, "no scheme, URL 2 of 2: not a URL that Apprise knows"),
        (f"json://127.0.0.1:1/{TOKEN}", "json, URL 2 of 2: refused or not reachable"),
    ],
)
def test_a_failure_is_seen_and_logged_once_without_the_url(
    discord: Emulator, log: _Log, url: str, problem: str
) -> None:
    """False, one warning naming the place by scheme, the other place is served (case H60)."""
    assert deliver_to([URL, url], _notice()) is False
    assert log.warnings == [f"Notice 'failed' was not delivered ({problem})."]
    assert TOKEN not in log.text
    assert WEBHOOK[1] not in log.text
    assert len(discord.received) == 1


@pytest.mark.parametrize("fault", [{"hang": 3}, {"status": 429, "times": 9, "retry_after": 60}])
def test_a_slow_discord_does_not_hold_up_a_run(
    discord: Emulator, log: _Log, fault: dict[str, Any]
) -> None:
    """Neither a hanging answer nor a rate limit is waited for beyond the deadline."""
    discord.faults = fault
    began = time.monotonic()
    assert not deliver_to([URL, URL], _notice(), deadline=0.2)
    assert time.monotonic() - began < 2
    assert len(log.warnings) == 1
    assert "no answer in time" in log.text


def test_an_error_inside_apprise_is_a_failed_delivery(
    monkeypatch: pytest.MonkeyPatch, log: _Log
) -> None:
    """Whatever goes wrong while sending is logged by its type and never raised."""

    def explode(*args: object) -> str:
        raise ValueError(URL)

    monkeypatch.setattr("blocks.notifier._send", explode)
    assert not deliver_to([URL], _notice())
    assert log.warnings == ["Notice 'failed' was not delivered (discord, URL 1 of 1: ValueError)."]


def test_no_place_means_nobody_was_told() -> None:
    """An empty list of targets is not a success (case H60)."""
    assert not deliver_to([], _notice())
    assert not NoNotifier().deliver(_notice())


def test_the_block_keeps_its_urls_secret() -> None:
    """Prefect encrypts and stars the field, and a printed block shows none of it."""
    block = Notifier(urls=[SecretStr(URL)])
    assert Notifier.model_json_schema()["secret_fields"] == ["urls"]
    assert Notifier.get_block_type_slug() == "axolotl-notifier"
    assert WEBHOOK[1] not in repr(block)


def test_urls_come_from_the_environment_where_no_block_is_named(discord: Emulator) -> None:
    """AXR_NOTIFY_URLS holds any number, separated by white space."""
    notifier = load_notifier(None, f" {URL}\n{URL}?format=text ")
    assert notifier.deliver(_notice("completed"))
    assert len(discord.received) == 2
    assert isinstance(load_notifier(None, None), NoNotifier)
    assert isinstance(load_notifier("", "  "), NoNotifier)


def test_a_named_block_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The block's URLs replace those of the environment."""
    block = Notifier(urls=[SecretStr("json://block")])
    monkeypatch.setattr(Notifier, "load", lambda name, **_: block)
    assert load_notifier("team", "json://env") is block


def test_a_block_that_cannot_be_loaded_leaves_the_environment(
    monkeypatch: pytest.MonkeyPatch, log: _Log
) -> None:
    """A run does not end for want of a notifier; one warning says what happened."""

    def missing(name: str, **_: object) -> Notifier:
        raise ValueError(f"Unable to find block document named {name}")

    monkeypatch.setattr(Notifier, "load", missing)
    notifier = load_notifier("team", "json://env")
    assert isinstance(notifier, Notifier)
    assert [url.get_secret_value() for url in notifier.urls] == ["json://env"]
    assert log.warnings == ["Notifier block 'team' can't be loaded (ValueError)."]


def test_a_wrong_url_is_named_by_its_scheme_only(log: _Log) -> None:
    """The warning at loading time gives nothing away."""
    load_notifier(None, f"json://fine dicsord://1/{TOKEN} {TOKEN}")
    assert log.warnings == [
        "Notices can't be sent to dicsord, URL 2 of 3.",
        "Notices can't be sent to no scheme, URL 3 of 3.",
    ]
    assert TOKEN not in log.text


@pytest.mark.parametrize(
    ("url", "usable"),
    [
        ("https://discord.com/api/webhooks/1234567890/abcDEF_-12", True),
        ("discord://1234567890/abcDEF", True),
        ("discord://", False),
        ("", False),
    ],
)
def test_discords_own_address_of_a_webhook_is_usable(url: str, usable: bool) -> None:
    """What Discord's settings page gives to copy works as it is."""
    assert is_usable(url) is usable
