"""Notices from the outbox to a strict local Discord, through the real Apprise."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from apprise.plugins.discord import NotifyDiscord
from prefect.states import Failed, Running

from deployments import keeper
from deployments import postman as postman_module
from deployments.postman import Postman, postman
from deployments.telling import send_test
from pod.rundir import write_json
from runner.attempts import AttemptFacts, to_message
from runner.errors import ConfigError
from runner.home import home
from runner.notice import Kind
from runner.outbox import Letter, Outbox
from runner.settings import NotifySettings
from tasks.notify import deliver
from tasks.run import open_run
from tests.emulators.discord import WEBHOOK, Emulator, running
from tests.prefect_stand_in import Server, stand_in

URL = "discord://{}/{}".format(*WEBHOOK)


@pytest.fixture
def discord(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Emulator]:
    """The emulator in Discord's place, and an empty home."""
    monkeypatch.setenv("AXR_HOME", str(tmp_path))
    monkeypatch.setenv("AXR_NOTIFY_URLS", URL)
    with running() as emulator:
        monkeypatch.setattr(NotifyDiscord, "notify_url", emulator.url)
        monkeypatch.setattr(NotifyDiscord, "clock_skew", timedelta(0))
        yield emulator


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """Keeps the runs; what is logged for one stands in `logs`."""
    made = stand_in(monkeypatch)
    made.logs = []  # type: ignore[attr-defined]
    made.create_logs = made.logs.extend  # type: ignore[attr-defined]
    return made


def _post(seconds: float = 60.0) -> Postman:
    """Send what waits, as at the end of a control side."""
    sender = postman(Outbox(home().outbox))
    sender.close(seconds)
    return sender


def _tell(run: str, kind: Kind = "failed", reason: str = "", **more: Any) -> None:
    settings = more.pop("settings", NotifySettings())
    deliver(open_run(run), settings, kind, reason, **more)


def _waiting() -> list[Letter]:
    return Outbox(home().outbox).letters()


def test_telling_takes_no_time_and_a_dead_service_delays_nobody(
    discord: Emulator, server: Server
) -> None:
    """What is left is not lost: it is sent when the service is back."""
    discord.faults = {"hang": 3.0}
    run = server.add_run(Running())
    began = time.monotonic()
    _tell(run, "started", "on local")
    assert time.monotonic() - began < 1
    assert [letter.notice.kind for letter in _waiting()] == ["started"]
    began = time.monotonic()
    _post(0.5)
    assert time.monotonic() - began < 3
    assert len(_waiting()) == 1
    discord.faults = {}
    _post()
    assert discord.received
    assert _waiting() == []


@pytest.mark.parametrize("url", [URL, "json://127.0.0.1:{port}/notify/x"])
def test_too_many_requests_are_tried_again(
    discord: Emulator, server: Server, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    """429 says when to come back; Apprise itself tries Discord once more, the postman the rest."""
    monkeypatch.setenv("AXR_NOTIFY_URLS", url.format(port=discord.server_port))
    monkeypatch.setattr(postman_module, "FIRST_PAUSE", 0.05)
    discord.faults = {"status": 429, "times": 2, "retry_after": 0.3}
    _tell(server.add_run(Running()))
    _post()
    assert len(discord.received) == 1
    assert len(discord.refused) == 2
    assert _waiting() == []


def test_a_long_log_arrives_with_the_essential_first(discord: Emulator, server: Server) -> None:
    """H58, H59, H61: 2 MB of a progress bar without a line's end, a traceback of 4500 characters,
    words that would ping everybody. One message within the limits; the error stands at its end.
    """
    run = server.add_run(Running())
    bar = "".join(f"\r{step / 1e3:.3f}% |####      | @everyone" for step in range(50_000))
    traceback = 'File "train.py", line 1\n' * 190 + "```\nValueError: <@&1234> bad row"
    _tell(run, reason="@everyone see ``` <@12>", outcome="crash", log=f"{bar}\r\n{traceback}")
    _post()
    [message] = discord.received
    [embed] = message["embeds"]
    assert message["pings"] == []
    assert run in embed["description"][:300]
    assert "crash" in embed["description"][:300]
    assert embed["description"].replace("\u200b", "").endswith("ValueError: <@&1234> bad row\n```")
    assert "@everyone" not in str(message)
    assert embed["description"].count("```") == 2


def test_a_refusal_is_said_once_in_the_runs_own_log_without_the_url(
    discord: Emulator, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H60: Apprise's result is no bool; a webhook that is gone must not look like a success."""
    monkeypatch.setenv("AXR_NOTIFY_URLS", f"discord://404/{WEBHOOK[1]} nonsense://{WEBHOOK[1]}")
    run = server.add_run(Running())
    _tell(run)
    _post()
    said = sorted(entry.message for entry in server.logs)  # type: ignore[attr-defined]
    assert said == [
        "Notice 'failed' was not delivered (discord, URL 1 of 2: HTTP 404).",
        "Notice 'failed' was not delivered (nonsense, URL 2 of 2: not a URL that Apprise knows).",
    ]
    assert {str(entry.flow_run_id) for entry in server.logs} == {run}  # type: ignore[attr-defined]
    assert _waiting() == []


def test_a_spike_comes_with_the_curve_so_far(discord: Emulator, server: Server) -> None:
    """Drawn by the postman from what the attempts said, not by the run."""
    run = server.add_run(Running())
    curve = tuple((step, 2.0 if step < 20 else 40.0) for step in range(1, 24))
    facts = AttemptFacts(1, "loss_spike", "rose", onset_step=20, alarm_step=23, curve=curve)
    server.add_child(run, "train-1", Failed(name="LossSpike", message=to_message(facts)))
    _tell(run, "spike", "loss rose 20x", facts={"attempt": 1})
    assert not (home().run(run) / "curve.png").exists()
    _post()
    files = [file for message in discord.received for file in message["files"]]
    assert [file["name"] for file in files] == ["curve.png"]
    assert files[0]["size"] > 10_000


def test_a_quiet_run_is_told_in_one_line_without_a_picture(
    discord: Emulator, server: Server
) -> None:
    """`notify: {quiet: true}`."""
    run = server.add_run(Running())
    (home().run(run) / "curve.png").write_bytes(b"PNG")
    settings = NotifySettings(quiet=True)
    _tell(run, "failed", "a\nb", settings=settings, outcome="crash", log="much\nmore")
    _post()
    [message] = discord.received
    [embed] = message["embeds"]
    assert message["files"] == []
    assert embed["description"].startswith("❌ crash: x.yml · run `")
    assert "\n" not in embed["description"]


def test_fifty_runs_are_one_message(discord: Emulator, server: Server) -> None:
    """A push of fifty files."""
    for _ in range(50):
        _tell(server.add_run(Running()), "started")
    _post()
    [message] = discord.received
    assert "50 runs: started" in message["embeds"][0]["title"]


def test_links_lead_to_ui_tracking_and_model(discord: Emulator, server: Server) -> None:
    """What the run's folder and labels know."""
    run = server.add_run(Running(), published="me/model")
    write_json(home().run(run) / "story" / "state.json", {"url": "https://wandb.ai/me/p/runs/1"})
    _tell(run, "completed", outcome="completed")
    _post()
    [message] = discord.received
    text = message["embeds"][0]["description"]
    assert "W&B: https://wandb.ai/me/p/runs/1" in text
    assert "/me/model" in text


def test_two_hundred_notices_and_a_dead_place_stay_bounded(
    discord: Emulator, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody listens there: the end of a control side takes its seconds, and no more."""
    monkeypatch.setenv("AXR_NOTIFY_URLS", "json://127.0.0.1:1/x")
    run = server.add_run(Running())
    for number in range(200):
        _tell(run, mark=f"told.{number}")
    began = time.monotonic()
    _post(0.5)
    assert time.monotonic() - began < 3
    assert len(_waiting()) == 200


def test_a_test_notice_says_which_place_took_it(
    discord: Emulator, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """H60: `axolotl-runner notify`, for whoever sets the runner up."""
    assert send_test(None) == 0
    assert capsys.readouterr().out == "discord, URL 1 of 1: delivered\n"
    monkeypatch.setenv("AXR_NOTIFY_URLS", f"{URL} discord://404/{WEBHOOK[1]} dicsord://1/x")
    assert send_test(None) == 1
    said = capsys.readouterr().out
    assert said.splitlines() == [
        "discord, URL 1 of 3: delivered",
        "discord, URL 2 of 3: HTTP 404",
        "dicsord, URL 3 of 3: not a URL that Apprise knows",
    ]
    monkeypatch.setenv("AXR_NOTIFY_URLS", "")
    with pytest.raises(ConfigError, match="nobody is told"):
        send_test(None)


def test_the_keeper_sends_what_waits_while_it_runs_and_at_its_end(
    discord: Emulator, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A postman in a thread of its own; a notice of the last second goes out too."""
    monkeypatch.setattr(postman_module, "EVERY", 0.05)
    run = server.add_run(Running())
    with keeper._sending_notices(home()):
        _tell(run, "started")
        until = time.monotonic() + 60
        while not discord.received and time.monotonic() < until:
            time.sleep(0.05)
        assert len(discord.received) == 1
        _tell(run, "completed")
    assert len(discord.received) == 2
