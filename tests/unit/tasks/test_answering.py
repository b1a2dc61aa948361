"""The answer on the commit when a run ends."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from blocks.commit_status import CommitStatus
from blocks.repository import Repository
from tasks import pushing
from tasks.run import Run

COMMIT = "ab" * 20
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
PUSHED = Run("run", "configs/a.yml", COMMIT, BEGAN, repository="me/x")


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, CommitStatus]]:
    """What reaches GitHub; one repository is connected."""
    found: list[tuple[str, CommitStatus]] = []

    def note(repository: Repository, commit: str, status: CommitStatus, **more: Any) -> bool:
        found.append((commit, status))
        return True

    known = {"me/x": Repository("me/x", "https://github.com/me/x.git")}
    monkeypatch.setattr(pushing, "find_repository", known.get)
    monkeypatch.setattr(pushing, "set_status", note)
    return found


def test_a_completed_run_is_a_success(said: list[tuple[str, CommitStatus]]) -> None:
    """At the commit that it was pushed with, for its own file."""
    pushing.answer_end(PUSHED, "completed", "trained to the planned last step")
    ((commit, status),) = said
    assert commit == COMMIT
    assert (status.path, status.state, status.description) == (
        "configs/a.yml",
        "success",
        "completed",
    )


def test_any_other_end_is_a_failure_with_the_reason(said: list[tuple[str, CommitStatus]]) -> None:
    """In the words of the report."""
    pushing.answer_end(PUSHED, "loss_spike", "no rung is left")
    ((_, status),) = said
    assert (status.state, status.description) == ("failure", "loss spike: no rung is left")


def test_a_run_that_was_not_pushed_says_nothing(said: list[tuple[str, CommitStatus]]) -> None:
    """Nor one of a repository that is not connected any more."""
    pushing.answer_end(Run("run", "a.yml", None, BEGAN), "completed", "")
    pushing.answer_end(Run("run", "a.yml", COMMIT, BEGAN, repository="me/y"), "completed", "")
    assert said == []
