"""The Hugging Face hub as the checks ask it: with the token that a run will have, in seconds."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import httpx2
from huggingface_hub import HfApi, set_client_factory
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HfUriError,
    HFValidationError,
    RepositoryNotFoundError,
)

from runner.checks.hub import Account, Away, Kind, Sight, TokenRefused

TIMEOUT_S = 8.0
UNAUTHORIZED = 401
T = TypeVar("T")


def hub_of(environment: Mapping[str, str]) -> Hub:
    """The hub that a run with these variables would use, and as it."""
    return _hub_at(environment.get("HF_ENDPOINT") or None, environment.get("HF_TOKEN") or None)


@functools.cache
def _hub_at(endpoint: str | None, token: str | None) -> Hub:
    return Hub(endpoint, token)


class Hub:
    """One that does not answer is not asked again."""

    def __init__(self, endpoint: str | None, token: str | None) -> None:
        self._hub = HfApi(endpoint=endpoint, token=token or False, library_name="axolotl-runner")
        self._away: Away | None = None
        set_client_factory(lambda: httpx2.Client(follow_redirects=True, timeout=TIMEOUT_S))

    def look(self, kind: Kind, name: str) -> Sight:
        """Whether the token may read a model or data set; Away."""
        try:
            self._asked(lambda: self._hub.auth_check(name, repo_type=kind))
        except GatedRepoError:
            return "gated"
        except (RepositoryNotFoundError, HFValidationError):
            return "absent"
        return "there"

    def account(self) -> Account:
        """Whose token it is; Away, TokenRefused."""
        return _account(self._asked(lambda: self._hub.whoami(cache=True)))

    def make(self, repository: str) -> str:
        """Make a private model repository if it is missing, which proves that the token may write;
        why not, empty where it could. Away.
        """
        try:
            with suppress(HfUriError):  # of an answer whose address is not the library's own hub
                self._asked(lambda: self._hub.create_repo(repository, private=True, exist_ok=True))
            # The library takes a repository that exists for made, whoever owns it.
            self._asked(lambda: self._hub.auth_check(repository, write=True))
        except (HFValidationError, TokenRefused) as error:
            return f"the hub refuses to make {repository}: {error}"
        except HfHubHTTPError as error:
            said = " ".join((error.server_message or str(error)).split())[:200]
            return f"the hub refuses to make {repository}: {said}"
        return ""

    def _asked(self, call: Callable[[], T]) -> T:
        if self._away is not None:
            raise self._away
        try:
            return call()
        except (GatedRepoError, RepositoryNotFoundError, HFValidationError, HfUriError):
            raise
        except HfHubHTTPError as error:
            status = error.response.status_code
            if status == UNAUTHORIZED:
                raise TokenRefused("the token is wrong or has run out") from error
            if status in (400, 403, 409):
                raise
            self._away = Away(f"{self._hub.endpoint} answers {status}")
        except (httpx2.HTTPError, OSError) as error:
            self._away = Away(f"{self._hub.endpoint}: {type(error).__name__}")
        raise self._away


def _account(said: Mapping[str, Any]) -> Account:
    token = (said.get("auth") or {}).get("accessToken") or {}
    orgs = [org for org in said.get("orgs") or [] if org.get("roleInOrg") != "read"]
    scopes = (token.get("fineGrained") or {}).get("scoped") or []
    writes = [
        str((scope.get("entity") or {}).get("name"))
        for scope in scopes
        if "repo.write" in (scope.get("permissions") or [])
    ]
    return Account(
        user=str(said["name"]),
        role=str(token.get("role") or "write"),
        orgs=tuple(str(org["name"]) for org in orgs),
        writes=tuple(writes),
    )
