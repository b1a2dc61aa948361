"""A model repository on the Hugging Face hub as a place; private, made when it is missing.

A checkpoint goes up as one commit, with its manifest and whatever is dropped for it: the hub allows
few commits an hour. What is deleted from a branch still counts as storage there, so `tidy` deletes
for good the large files under its prefix that no file of the branch holds any more.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import httpx2
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import (
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
)
from huggingface_hub.hf_api import RepoFile

from pod.hub_calls import BUSY, patiently, root, set_up_library, words_of
from pod.store.places import Changed, Source, StoreError

THREADS = 2

T = TypeVar("T")


class HubPlace:
    """Files below `base` on the main branch of a model repository."""

    def __init__(self, repo: str, base: str, environment: Mapping[str, str]) -> None:
        self.repo = repo
        self.base = f"{base}/" if base else ""
        self.url = f"hf://{repo}/{base}".rstrip("/")
        self._sleep: Callable[[float], None] = time.sleep
        self._hub = HfApi(
            endpoint=environment.get("HF_ENDPOINT") or None,
            token=environment.get("HF_TOKEN") or False,
            library_name="axolotl-runner",
        )
        set_up_library()

    def check(self) -> None:
        """Make the repository; raises StoreError when the token is missing, wrong or read-only."""
        with self._told("write to it"):
            if not self._hub.token:
                raise StoreError(
                    f"checkpoint store {self.url}: no token; set HF_TOKEN to one with write access"
                )
            if self._role() == "read":
                raise StoreError(
                    f"checkpoint store {self.url}: the token in HF_TOKEN may only read; "
                    "use one with write access"
                )
            self._try(lambda: self._hub.create_repo(self.repo, private=True, exist_ok=True))

    def owner(self) -> str:
        """The user whose token it is; raises StoreError when the hub does not say."""
        with self._told("ask whose token it is"):
            if not self._hub.token:
                raise StoreError("HF_TOKEN is not set")
            return str(self._try(self._hub.whoami)["name"])

    def listing(self, prefix: str) -> dict[str, int]:
        """The names below a folder; none in a repository that does not exist."""
        found = self._tree(self.base + prefix)
        return {file.path.removeprefix(self.base): file.size for file in found}

    def put(self, files: Mapping[str, Source], *, delete: Sequence[str] = ()) -> None:
        """Commit everything at once. The hub checks large files against their hash itself."""
        with self._told(f"write {next(iter(files), 'files')} to it"):
            self._try(lambda: self._commit(files, delete))

    def get(self, name: str, target: Path) -> None:
        """Download one file, going on where a broken transfer has ended."""
        aside = target.with_name(f".{target.name}.hub")
        with self._told(f"read {name} from it"):
            try:
                fetched = self._try(
                    lambda: self._hub.hf_hub_download(self.repo, self.base + name, local_dir=aside)
                )
            except (RemoteEntryNotFoundError, RepositoryNotFoundError) as error:
                raise KeyError(name) from error
            Path(fetched).replace(target)
            shutil.rmtree(aside, ignore_errors=True)

    def delete(self, names: Sequence[str]) -> None:
        """Delete them in one commit."""
        with self._told("delete from it"):
            self._try(lambda: self._commit({}, names))

    def tidy(self, prefix: str) -> None:
        """Delete for good the large files of former commits."""
        here = {file.lfs.sha256 for file in self._tree("") if file.lfs is not None}
        with self._told("tidy it"), contextlib.suppress(RepositoryNotFoundError):
            every = self._try(lambda: [*self._hub.list_lfs_files(self.repo)])
            start = self.base + prefix
            gone = [f for f in every if f.filename.startswith(start) and f.file_oid not in here]
            if gone:
                self._try(lambda: self._hub.permanently_delete_lfs_files(self.repo, gone))

    def _role(self) -> str | None:
        """read, write or fineGrained; None when the hub has no time to say."""
        try:
            me = self._hub.whoami()
        except HfHubHTTPError as error:
            if error.response.status_code in BUSY:  # few calls are allowed
                return None
            raise
        role = ((me.get("auth") or {}).get("accessToken") or {}).get("role")
        return None if role is None else str(role)

    def _commit(self, files: Mapping[str, Source], delete: Sequence[str]) -> None:
        """Made anew for each try: after a lost answer the hub may have it already."""
        there = {file.path for file in self._tree(self.base)} if delete else set()
        operations: list[Any] = [
            CommitOperationDelete(self.base + name)
            for name in dict.fromkeys(delete)
            if self.base + name in there and name not in files
        ]
        for name, source in files.items():
            if not source.path.is_file():
                raise FileNotFoundError(source.path)
            addition = CommitOperationAdd(self.base + name, source.path)
            if source.sha256 is not None and addition.upload_info.sha256.hex() != source.sha256:
                raise Changed(f"{name} has changed since it was recorded")
            operations.append(addition)
        if operations:
            title = f"Store {[*files][-1]}" if files else "Delete what is not needed"
            self._hub.create_commit(
                self.repo, operations, commit_message=title, num_threads=THREADS
            )

    def _tree(self, path: str) -> list[RepoFile]:
        with self._told("list it"):
            try:
                entries = self._try(
                    lambda: [
                        *self._hub.list_repo_tree(
                            self.repo, path.rstrip("/") or None, recursive=True
                        )
                    ]
                )
            except (RemoteEntryNotFoundError, RepositoryNotFoundError):
                return []
        return [entry for entry in entries if isinstance(entry, RepoFile)]

    def _try(self, call: Callable[[], T]) -> T:
        return patiently(call, sleep=self._sleep)

    @contextlib.contextmanager
    def _told(self, what: str) -> Iterator[None]:
        where = f"checkpoint store {self.url} at {self._hub.endpoint}"
        try:
            yield
        except (StoreError, KeyError):
            raise
        except LocalEntryNotFoundError as error:  # what a download says when the hub is away
            raise StoreError(f"{where}: can't {what}: {root(error)}") from error
        except FileNotFoundError:
            raise
        except HfHubHTTPError as error:
            status = error.response.status_code
            advice = {
                401: "; HF_TOKEN is wrong or has run out",
                402: "; the account's storage is used up",
                403: "; HF_TOKEN needs write access there, or name another repository",
                404: "; there is no such repository, or HF_TOKEN does not open it",
            }.get(status, "")
            raise StoreError(f"{where}: can't {what}: {words_of(error)}{advice}") from error
        except (httpx2.HTTPError, OSError, RuntimeError, ValueError) as error:
            raise StoreError(f"{where}: can't {what}: {root(error)}") from error
