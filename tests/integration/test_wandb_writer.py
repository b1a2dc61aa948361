"""The control side's writer with the real wandb: offline, and with a service that is no help."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from runner import wandb_open, wandb_writer
from runner.home import REPOSITORY
from runner.wandb_feed import Feed
from runner.wandb_run import WandbRun
from tests.wandb_files import WandbFile, wandb_files

ID = "axr-0bd1c5a4"
CONFIG = {"run": "0bd1c5a4", "axolotl": {"learning_rate": 0.004, "datasets": [{"path": "x"}]}}
REFUSAL = f"run {ID} was previously created and deleted; try a new run name"


def _feed(folder: Path, mode: str = "offline") -> Feed:
    feed = Feed(folder)
    run = WandbRun(ID, "toy", "me", "night", ("a",), mode)  # type: ignore[arg-type]
    feed.open(run, CONFIG)
    return feed


def _start(feed: Feed) -> subprocess.Popen[bytes]:
    with feed.log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "runner.wandb_writer", str(feed.run_folder)],
            cwd=REPOSITORY,
            env={k: v for k, v in os.environ.items() if not k.startswith("WANDB_")},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
        )


def _until_sent(feed: Feed, within: float = 60.0) -> None:
    deadline = time.monotonic() + within
    while not feed.is_sent:
        assert time.monotonic() < deadline, feed.log.read_text()
        time.sleep(0.05)


def _only(files: list[WandbFile]) -> WandbFile:
    assert len(files) == 1
    return files[0]


def test_an_early_failure_is_complete_with_its_log(tmp_path: Path) -> None:
    """Lines, phases on their own axis, alerts, why it failed: all without a pod or a trainer."""
    feed = _feed(tmp_path)
    writer = _start(feed)
    feed.say("line", text="INFO: looking for a pod")
    feed.say("row", values={"runner/hours": 0.1, "runner/seconds/provision": 12.5})
    feed.say("alert", mark="1", title="no_capacity: t.yml " + "x" * 99, text="none", level="ERROR")
    feed.say("line", text="no_capacity: no cloud has a pod")
    feed.say("end", exit_code=1, summary={"runner/outcome": "no_capacity"})
    assert writer.wait(60) == 0, feed.log.read_text()
    found = _only(wandb_files(tmp_path))
    assert (found.run_id, found.project, found.name, found.tags) == (ID, "toy", "night", ("a",))
    assert found.lines == ["INFO: looking for a pod", "no_capacity: no cloud has a pod"]
    assert found.rows[0]["runner/seconds/provision"] == 12.5
    assert found.axes == {"runner/seconds/provision": "runner/hours"}
    assert [(title[:16], text) for title, text in found.alerts] == [("no_capacity: t.y", "none")]
    assert found.config["axolotl"]["learning_rate"] == 0.004
    assert found.summary["runner/outcome"] == "no_capacity"
    assert found.exit_code == 1
    assert (feed.state().mode, feed.state().url, feed.state().trouble) == ("offline", "", "")


def test_a_revived_parent_goes_on_in_the_same_run(tmp_path: Path) -> None:
    """The first writer goes with its parent and says nothing of an end; nothing is said twice."""
    feed = _feed(tmp_path)
    first = _start(feed)
    feed.say("line", text="one")
    _until_sent(feed)
    second = _start(feed)  # before the first has seen that its parent is gone
    assert first.stdin is not None
    first.stdin.close()
    assert first.wait(60) == 0
    feed.say("line", text="two")
    feed.say("end", exit_code=0, summary={})
    assert second.wait(60) == 0
    files = wandb_files(tmp_path)
    assert [line for file in files for line in file.lines] == ["one", "two"]
    assert {file.run_id for file in files} == {ID}
    assert [file.exit_code for file in files if file.exit_code is not None] == [0]


def test_a_writer_with_nothing_to_say_opens_nothing(tmp_path: Path) -> None:
    """As after an end that was sent: neither wandb nor a file."""
    feed = _feed(tmp_path)
    writer = _start(feed)
    assert writer.stdin is not None
    writer.stdin.close()
    assert writer.wait(60) == 0
    assert not wandb_files(tmp_path)


@contextmanager
def _service(answers: bool) -> Iterator[str]:
    """The address of a W&B service that refuses the run, or never answers."""
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            if not answers:
                over.wait()
                return
            body = json.dumps({"errors": [{"message": REFUSAL}], "data": None}).encode()
            self.send_response(409)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        over.set()
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize("answers", [True, False], ids=["refuses", "hangs"])
def test_a_service_that_is_no_help_is_written_around(
    answers: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H43, H31: a deleted id, or no answer at all. Within a limit the story goes into a file."""
    monkeypatch.setattr(wandb_open, "OPENS_WITHIN", 2.0)
    monkeypatch.setattr(wandb_open, "LEAVES_WITHIN", 8.0)
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    feed = _feed(tmp_path, "shared")
    feed.say("line", text="kept")
    feed.say("end", exit_code=0, summary={})
    with _service(answers) as address:
        monkeypatch.setenv("WANDB_BASE_URL", address)
        wandb_writer.main(tmp_path, lambda: True)
    assert feed.is_sent
    assert feed.state().mode == "offline"
    assert "CommError" in feed.state().trouble
    kept = [file for file in wandb_files(tmp_path) if file.lines]
    assert [(file.run_id, file.lines) for file in kept if "offline" in str(file.path)] == [
        (ID, ["kept"])
    ]


def test_without_the_package_the_feed_is_read_and_nothing_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The project runs without wandb; why there is nothing is said."""
    monkeypatch.setitem(sys.modules, "wandb", None)
    feed = _feed(tmp_path)
    feed.say("line", text="x")
    feed.say("row", values={"runner/hours": 1.0})
    feed.say("end", exit_code=0, summary={"a": 1})
    wandb_writer.main(tmp_path, lambda: True)
    assert feed.is_sent
    assert "not installed" in feed.state().trouble
