"""Which files a repository has, at the commit that its branch stands at now."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import httpx2
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.hf_api import RepoFile

from pod.fetch.choice import choose
from pod.fetch.inputs import Input
from pod.fetch.snapshot import RemoteFile, Snapshot
from pod.fetch.source import page
from pod.fetch.troubles import PASSING, Busy, FetchError, Refused, after, refusal

TRIES = 6
FIRST_WAIT_S, MOST_WAIT_S = 1.0, 120.0

T = TypeVar("T")


class Listing:
    """Asks one hub."""

    def __init__(
        self,
        endpoint: str,
        token: str | None,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.endpoint = endpoint
        self._token = token
        self._sleep = sleep
        self._hub = HfApi(endpoint=endpoint, token=token or False, library_name="axolotl-runner")

    def snapshots(self, wanted: Sequence[Input]) -> list[Snapshot]:
        """What the inputs read, one snapshot for each repository and revision, with its files."""
        grouped: dict[tuple[str, str, str | None], list[Input]] = {}
        for each in wanted:
            grouped.setdefault((each.repo, each.kind, each.revision), []).append(each)
        return [self._snapshot(group) for group in grouped.values()]

    def _snapshot(self, group: list[Input]) -> Snapshot:
        first = group[0]
        bare = Snapshot(first.repo, first.kind, first.revision or "main", first.revision)
        try:
            info = self._try(
                lambda: self._hub.repo_info(
                    first.repo, repo_type=first.kind, revision=first.commit or first.revision
                )
            )
            if info.gated:  # everybody sees its list of files
                self._try(lambda: self._hub.auth_check(first.repo, repo_type=first.kind))
            known = replace(bare, revision=str(info.sha))
            files = self._try(lambda: self._files(known))
        except HfHubHTTPError as error:
            raise self._refusal(error, bare, first) from error
        chosen: dict[str, RemoteFile] = {}
        for each in group:
            chosen |= {file.path: file for file in choose(files, each)}
        if not chosen:
            raise Refused(f"{_named(bare, first)} on {self.endpoint} has no file to train with")
        return known.only(chosen[path] for path in sorted(chosen))

    def _files(self, snapshot: Snapshot) -> list[RemoteFile]:
        tree = self._hub.list_repo_tree(
            snapshot.repo, recursive=True, revision=snapshot.revision, repo_type=snapshot.kind
        )
        return [
            RemoteFile(
                entry.path,
                entry.size if entry.lfs is None else entry.lfs.size,
                entry.blob_id,
                None if entry.lfs is None else entry.lfs.sha256,
                xet=entry.xet_hash is not None,
            )
            for entry in tree
            if isinstance(entry, RepoFile)
        ]

    def _try(self, call: Callable[[], T]) -> T:
        """Again after a while, a few times, when the hub is busy or away."""
        for left in reversed(range(TRIES)):
            usual = min(MOST_WAIT_S, FIRST_WAIT_S * 2.0 ** (TRIES - 1 - left))
            try:
                return call()
            except HfHubHTTPError as error:
                status = error.response.status_code
                if status not in PASSING:
                    raise
                if not left:
                    raise Busy(
                        f"{self.endpoint} answers {status} to each of {TRIES} tries"
                    ) from error
                usual = min(MOST_WAIT_S, after(error.response.headers) or usual)
            except httpx2.TransportError as error:
                if not left:
                    reason = f"{type(error).__name__}: {error}".rstrip(": ")
                    raise Busy(f"{self.endpoint} can't be reached: {reason}") from error
            self._sleep(usual)
        raise AssertionError("the last try returns or raises")

    def _refusal(self, error: HfHubHTTPError, snapshot: Snapshot, first: Input) -> FetchError:
        return refusal(
            error.response.status_code,
            error.response.headers,
            what=_named(snapshot, first),
            endpoint=self.endpoint,
            page=page(snapshot),
            has_token=self._token is not None,
        )


def _named(snapshot: Snapshot, first: Input) -> str:
    """The repository with where the task file names it: `base_model: me/model at v1`."""
    key = ".".join(str(step) for step in first.key)
    at = f" at {snapshot.asked}" if snapshot.asked else ""
    return f"{key}: {snapshot.label}{at}"
