"""Private repositories: the token opens them, and nobody sees it."""

from __future__ import annotations

import base64
import http.server
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pydantic import SecretStr

from blocks import repository as repositories
from blocks.repository import Repository
from runner.errors import ConfigError, TryAgain
from runner.push.git import Git
from tests.histories import History

TOKEN = "ghp_verysecret"


class Private(http.server.BaseHTTPRequestHandler):
    """A bare repository over HTTP, for whoever knows the token."""

    folder: Path

    def do_GET(self) -> None:
        wanted = base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode()
        if self.headers.get("Authorization") != f"Basic {wanted}":
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="x"')
            self.end_headers()
            return
        file = self.folder / urlsplit(self.path).path.lstrip("/")
        self.send_response(200 if file.is_file() else 404)
        self.end_headers()
        if file.is_file():
            self.wfile.write(file.read_bytes())

    def log_message(self, *arguments: object) -> None:
        """Quiet."""


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    """The address of a private repository and its only commit."""
    monkeypatch.setenv("AXR_HOME", str(tmp_path / "home"))
    work = History.new(tmp_path / "work")
    commit = work.add("configs/a.yml")
    work.git("clone", "-q", "--bare", ".", str(tmp_path / "served" / "x.git"))
    bare = History(tmp_path / "served" / "x.git")
    bare.git("update-server-info")
    handler = type("Handler", (Private,), {"folder": tmp_path / "served"})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/x.git", commit
    server.shutdown()
    server.server_close()


def test_the_token_opens_it_and_is_in_no_command_line_remote_or_file(
    private: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git asks a helper, which has it from its environment."""
    url, commit = private
    commands: list[list[str]] = []
    run = subprocess.run

    def watched(command: list[str], **more: object) -> object:
        commands.append(command)
        return run(command, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "run", watched)
    repository = Repository("me/x", url, SecretStr(TOKEN))
    git = repository.with_commit(commit)
    assert git.text("cat-file", "-t", commit) == "commit"
    assert any("fetch" in command for command in commands)
    assert TOKEN not in str(commands)
    written = [file.read_bytes() for file in repository.copy.rglob("*") if file.is_file()]
    assert not any(TOKEN.encode() in content for content in written)
    assert TOKEN not in repr(repository) + repr(git)


def test_an_error_shows_neither_token_nor_credentials(private: tuple[str, str]) -> None:
    """With a wrong token; and git never asks a person."""
    url, _ = private
    wrong = Repository("me/x", url, SecretStr("ghp_wrong"))
    with pytest.raises(TryAgain, match="me/x can't be read") as refused:
        wrong.fetch()
    assert "ghp_wrong" not in str(refused.value)
    shown = Git(Path(), secrets=(TOKEN,)).shown(f"fatal: https://u:{TOKEN}@x/ {TOKEN} http://a:b@y")
    assert shown == "fatal: https://***@x/ *** http://***@y"


@pytest.mark.parametrize(
    "url", ["http://example.com/x.git", "git@github.com:me/x.git", "/srv/x.git", "file:///srv/x"]
)
def test_the_token_is_given_to_no_other_kind_of_address(url: str) -> None:
    """Not without TLS, and not where it is not needed."""
    assert TOKEN not in str(Repository("me/x", url, SecretStr(TOKEN)).git().environment)
    safe = Repository("me/x", "https://github.com/me/x.git", SecretStr(TOKEN)).git().environment
    assert safe["GIT_CONFIG_KEY_2"] == "credential.https://github.com.helper"


def test_a_commit_stays_though_its_branch_was_forced_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that trains it needs its files to the end."""
    monkeypatch.setenv("AXR_HOME", str(tmp_path / "home"))
    work = History.new(tmp_path / "work")
    first = work.add("configs/a.yml")
    repository = Repository("me/x", str(work.folder))
    repository.with_commit(first)
    work.git("commit", "-q", "--amend", "-m", "other")
    git = repository.fetch()
    git.run("-c", "gc.pruneExpire=now", "gc", "--quiet", "--prune=now")
    assert git.has_commit(first)


def test_a_commit_that_is_not_there_is_looked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GitHub tells of a push a moment before all of its servers have it."""
    monkeypatch.setenv("AXR_HOME", str(tmp_path / "home"))
    work = History.new(tmp_path / "work")
    work.add("configs/a.yml")
    waits: list[float] = []
    with pytest.raises(ConfigError, match="has no commit"):
        Repository("me/x", str(work.folder)).with_commit("ab" * 20, sleep=waits.append)
    assert waits == [repositories.LOOK_AGAIN_AFTER] * (repositories.LOOKS - 2)


def test_the_environment_of_a_hook_leads_git_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git sets GIT_DIR for hooks, and we may be called from one."""
    work = History.new(tmp_path / "work")
    head = work.add("a")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    assert work.plain.text("rev-parse", "HEAD") == head
    assert os.environ["GIT_DIR"]
