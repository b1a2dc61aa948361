"""The answer on the commit: in GitHub's form, tried again, never an error."""

from __future__ import annotations

import json

import httpx
import pytest
from pydantic import SecretStr

from blocks.commit_status import CommitStatus, set_status
from blocks.repository import Repository

COMMIT = "ab" * 20
GITHUB = Repository("me/x", "https://github.com/me/x.git", SecretStr("ghp_secret"))
STATUS = CommitStatus("configs/a b.yml", "pending", "training\nnow", "https://ui/runs/1")


def _set(
    *answers: httpx.Response | Exception, repository: Repository = GITHUB
) -> tuple[bool, list[httpx.Request], list[float]]:
    asked: list[httpx.Request] = []
    waits: list[float] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        given = answers[min(len(asked), len(answers)) - 1]
        if isinstance(given, Exception):
            raise given
        return given

    transport = httpx.MockTransport(answer)
    done = set_status(repository, COMMIT, STATUS, transport=transport, sleep=waits.append)
    return done, asked, waits


def test_a_status_names_the_file_and_leads_to_the_run() -> None:
    """One context a file, so that each has its own line."""
    done, (request,), _ = _set(httpx.Response(201))
    assert done
    assert str(request.url) == f"https://api.github.com/repos/me/x/statuses/{COMMIT}"
    assert request.headers["Authorization"] == "Bearer ghp_secret"
    assert json.loads(request.content) == {
        "state": "pending",
        "context": "axolotl-runner: configs/a b.yml",
        "description": "training now",
        "target_url": "https://ui/runs/1",
    }


def test_a_long_reason_is_cut_and_no_link_is_none() -> None:
    """GitHub refuses more than 140 letters, and what is no address."""
    body = CommitStatus("a.yml", "failure", "x" * 500).body()
    assert len(body["description"]) == 140
    assert "target_url" not in body


def test_a_busy_github_is_asked_again() -> None:
    """As long as it says, a minute at most."""
    busy = httpx.Response(403, headers={"Retry-After": "7"})
    done, asked, waits = _set(httpx.ConnectError("x"), busy, httpx.Response(201))
    assert done
    assert len(asked) == 3
    assert waits == [1.0, 7.0]


@pytest.mark.parametrize(("answer", "asked"), [(404, 1), (403, 1), (422, 1), (500, 4)])
def test_a_failure_is_a_warning(answer: int, asked: int, caplog: pytest.LogCaptureFixture) -> None:
    """Without the token in it; what will not change is asked once."""
    done, requests, _ = _set(httpx.Response(answer))
    assert not done
    assert len(requests) == asked
    assert f"HTTP {answer}" in caplog.text
    assert "ghp_secret" not in caplog.text


def test_where_there_is_no_github_or_no_token_nothing_is_sent() -> None:
    """A bare repository on this machine, another host, a public repository."""
    for repository in (
        Repository("me/x", "/srv/x.git", SecretStr("ghp_secret")),
        Repository("me/x", "https://git.example/me/x.git", SecretStr("ghp_secret")),
        Repository("me/x", "https://github.com/me/x.git"),
    ):
        done, asked, _ = _set(httpx.Response(201), repository=repository)
        assert not done
        assert asked == []
