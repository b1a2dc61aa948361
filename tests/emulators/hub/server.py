"""The two servers of the hub: its API, and its storage at another origin."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.emulators.hub.account import Accounts
from tests.emulators.hub.api import Api
from tests.emulators.hub.faults import Faults
from tests.emulators.hub.handler import Files, Server
from tests.emulators.hub.repository import Entry, Repository, Stored, key_of
from tests.emulators.hub.storage import Storage

PAGE = 1000


class Emulator:
    """Both servers; `running` starts and ends them."""

    def __init__(self, port: int, home: Path) -> None:
        self.accounts = Accounts()
        self.storage = Storage(home)
        self.faults = Faults()
        self.requests: list[dict[str, Any]] = []
        self.page = PAGE
        self.rate: float | None = None  # bytes a second of each connection to the storage
        self.api = Server(("127.0.0.1", port), Api)
        self.files = Server(("127.0.0.1", 0), Files)
        self.api.hub = self.files.hub = self

    @property
    def url(self) -> str:
        """What HF_ENDPOINT must be."""
        return f"http://127.0.0.1:{self.api.server_port}"

    @property
    def files_url(self) -> str:
        """The origin of the storage."""
        return f"http://127.0.0.1:{self.files.server_port}"

    @property
    def state(self) -> dict[str, Any]:
        """What GET /_state answers."""
        repos = {
            repo.key: {
                "private": repo.private,
                "head": repo.head.sha,
                "commits": [commit.title for commit in repo.commits],
                "files": {
                    path: {"size": entry.size, "oid": entry.sha256 or entry.oid}
                    for path, entry in sorted(repo.head.tree.items())
                },
                "storage": {oid: stored.size for oid, stored in repo.storage.items()},
            }
            for repo in self.accounts.repos.values()
        }
        uploads = [vars(upload) for upload in self.storage.uploads.values()]
        return {"repos": repos, "requests": list(self.requests), "uploads": uploads}

    def set(self, faults: list[dict[str, Any]]) -> None:
        """Replace the faults."""
        self.faults.set(faults)

    def repository(self, repo: str, kind: str = "model") -> Repository:
        """The repository of this name."""
        return self.accounts.repos[key_of(kind, repo)]

    def plant(self, repo: str, files: dict[str, int | str], kind: str = "model") -> str:
        """Commit files that nobody uploads: a text is a small file's content, a number the size of
        a large one, which takes little of the disk. The repository is made when it is missing; the
        new commit's hash.
        """
        owner = repo.partition("/")[0]
        with self.accounts.lock:
            made = self.accounts.repos.setdefault(
                key_of(kind, repo), Repository(repo, owner, private=False, kind=kind)
            )
        tree = dict(made.head.tree)
        for path, what in files.items():
            if isinstance(what, str):
                tree[path] = Entry(len(what.encode()), what.encode())
                continue
            oid = self.storage.plant(f"{kind} {repo} {path}", what)
            made.storage[oid] = Stored(what, time.time(), path)
            tree[path] = Entry(what, sha256=oid)
        return made.commit("Plant", "", owner, tree).sha


@contextlib.contextmanager
def running(port: int = 0, home: Path | None = None) -> Iterator[Emulator]:
    """A hub in threads of this process, gone at the end of the block."""
    with tempfile.TemporaryDirectory() as folder:
        hub = Emulator(port, home or Path(folder))
        threads = [
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
            for server in (hub.api, hub.files)
        ]
        for thread in threads:
            thread.start()
        try:
            yield hub
        finally:
            for server in (hub.api, hub.files):
                server.shutdown()
                server.server_close()
            for thread in threads:
                thread.join()
