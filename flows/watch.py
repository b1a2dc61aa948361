"""Look whether branches have moved, for those who can't receive hooks."""

from __future__ import annotations

from prefect import flow

from tasks.watching import look_at


@flow(name="watch_repo", persist_result=False)
def watch_repo(repository: str | None = None) -> int:
    """Report each push since the last look as an event; the number of events.

    The first look only remembers where the branches are.

    Args:
        repository: owner/name of a connected repository, all of them without one.
    """
    return look_at(repository)
