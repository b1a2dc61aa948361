"""The model repository on the hub that a run publishes to: made, listed, committed to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.hf_api import RepoFile

from pod.hub_calls import patiently, set_up_library
from pod.publish.hashes import LocalFile, RemoteFile

THREADS = 4


class ModelRepository:
    """One repository, by the token in `environment`. Errors are the library's own."""

    def __init__(
        self,
        name: str,
        environment: Mapping[str, str],
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.name = name
        self._sleep = sleep
        self._hub = HfApi(
            endpoint=environment.get("HF_ENDPOINT") or None,
            token=environment.get("HF_TOKEN") or False,
            library_name="axolotl-runner",
        )
        set_up_library()

    def make(self, *, private: bool) -> None:
        """Make it where it is missing; one that is there keeps its visibility."""
        self._try(lambda: self._hub.create_repo(self.name, private=private, exist_ok=True))

    def tree(self) -> dict[str, RemoteFile]:
        """All of its files."""
        entries = self._try(lambda: [*self._hub.list_repo_tree(self.name, recursive=True)])
        return {
            entry.path: RemoteFile(
                entry.size, entry.blob_id, entry.lfs.sha256 if entry.lfs is not None else None
            )
            for entry in entries
            if isinstance(entry, RepoFile)
        }

    def commit(
        self, title: str, files: Mapping[str, LocalFile], delete: Iterable[str] = ()
    ) -> None:
        """Send files and drop others, all of it or nothing. Large files that the hub has received
        once are not sent again.
        """
        dropped = list(delete)

        def once() -> None:  # the operations of a failed commit can't be used again
            operations: list[Any] = [CommitOperationDelete(name) for name in dropped]
            operations += [CommitOperationAdd(name, file.path) for name, file in files.items()]
            self._hub.create_commit(
                self.name, operations, commit_message=title, num_threads=THREADS
            )

        self._try(once)

    def _try(self, call: Callable[[], Any]) -> Any:
        return patiently(call, sleep=self._sleep, confirm=True)
