"""The block that connects a repository: prefect-github's, with the name that events give it."""

from __future__ import annotations

from typing import ClassVar

from prefect_github.repository import GitHubRepository
from pydantic import Field


class ConnectedRepository(GitHubRepository):  # type: ignore[misc]
    """A repository whose pushes start runs.

    A private one needs credentials: a token that may read its contents and write commit statuses.
    """

    _block_type_name: ClassVar[str | None] = "Connected Repository"
    _block_type_slug: ClassVar[str | None] = "connected-repository"

    full_name: str = Field(
        title="Full name", description="owner/name, as GitHub shows it and as events name it."
    )

    def _create_repo_url(self) -> str:
        """Without the token, which would stand in git's command line and in the clone's remote."""
        return str(self.repository_url)
