"""A repository of a model or a data set: its commits, its tree, what its storage holds."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from tests.emulators.hub.problems import Refused, no_entry

# fmt: off
LFS_SUFFIXES = (
    ".7z", ".arrow", ".bin", ".bz2", ".ckpt", ".ftz", ".gz", ".h5", ".joblib",
    ".mlmodel", ".model", ".msgpack", ".npy", ".npz", ".onnx", ".ot", ".parquet", ".pb",
    ".pickle", ".pkl", ".pt", ".pth", ".rar", ".safetensors", ".tar", ".tflite", ".tgz",
    ".wasm", ".xz", ".zip", ".zst",
)
# fmt: on
ATTRIBUTES = "".join(f"*{s} filter=lfs diff=lfs merge=lfs -text\n" for s in LFS_SUFFIXES)
REGULAR_MOST = 10 * 1024 * 1024


@dataclass(frozen=True)
class Entry:
    """A file of a tree: `content` of small files, the `sha256` of large ones in the storage."""

    size: int
    content: bytes | None = None
    sha256: str | None = None

    @property
    def oid(self) -> str:
        """Git's hash of the file, or of the pointer that stands for it."""
        return git_hash(self.pointer if self.content is None else self.content)

    @property
    def pointer(self) -> bytes:
        """What git holds of a large file."""
        text = "version https://git-lfs.github.com/spec/v1\n"
        return f"{text}oid sha256:{self.sha256}\nsize {self.size}\n".encode()

    @property
    def lfs(self) -> dict[str, Any] | None:
        """How listings describe a large file."""
        if self.sha256 is None:
            return None
        return {"oid": self.sha256, "size": self.size, "pointerSize": len(self.pointer)}


@dataclass(frozen=True)
class Commit:
    """One state of the branch."""

    sha: str
    title: str
    message: str
    author: str
    t: float
    tree: dict[str, Entry]


@dataclass(frozen=True)
class Stored:
    """A large file in the storage of the repository."""

    size: int
    t: float
    filename: str = ""


@dataclass
class Repository:
    """The branch main of one repository; `kind` is model or dataset.

    `gated` is what listings say (`auto`, `manual`), "" for an open one; `granted` are the users who
    may read its files besides its owner. `xet` says that its large files are offered through Xet.
    """

    id: str
    owner: str
    private: bool
    kind: str = "model"
    gated: str = ""
    granted: tuple[str, ...] = ()
    xet: bool = False
    created: float = field(default_factory=time.time)
    commits: list[Commit] = field(default_factory=list)
    storage: dict[str, Stored] = field(default_factory=dict)

    def __post_init__(self) -> None:
        content = ATTRIBUTES.encode()
        tree = {".gitattributes": Entry(len(content), content)}
        self.commit("initial commit", "", self.owner, tree)

    @property
    def key(self) -> str:
        """Its name among the repositories of all kinds, as addresses have it."""
        return key_of(self.kind, self.id)

    @property
    def head(self) -> Commit:
        return self.commits[-1]

    def at(self, revision: str) -> Commit:
        """The commit of a revision: main, or a hash."""
        if revision in ("main", "refs/heads/main"):
            return self.head
        for commit in self.commits:
            if commit.sha == revision:
                return commit
        raise Refused(404, f"Invalid rev id: {revision}", "RevisionNotFound")

    def commit(self, title: str, message: str, author: str, tree: dict[str, Entry]) -> Commit:
        """A new head."""
        seed = f"{self.id}\0{len(self.commits)}\0{title}\0{time.time_ns()}"
        made = Commit(
            hashlib.sha1(seed.encode()).hexdigest(), title, message, author, time.time(), tree
        )
        self.commits.append(made)
        return made

    def squash(self, title: str) -> None:
        """One commit instead of all."""
        self.commits = [replace(self.head, title=title)]

    def delete_for_good(self, hashes: list[str], *, rewrite: bool) -> None:
        """Free the storage of large files; without `rewrite` their pointers dangle."""
        for sha256 in hashes:
            if self.storage.pop(sha256, None) is None:
                raise Refused(404, f"LFS file {sha256} not found", "EntryNotFound")
        if rewrite:
            self.commits = [
                replace(
                    commit,
                    sha=hashlib.sha1(f"rewritten {commit.sha}".encode()).hexdigest(),
                    tree={p: e for p, e in commit.tree.items() if e.sha256 not in hashes},
                )
                for commit in self.commits
            ]

    def listing(self, revision: str, path: str, *, recursive: bool) -> list[dict[str, Any]]:
        """Files and folders below `path`; raises Refused when there is no such folder."""
        tree = self.at(revision).tree
        start = f"{path}/" if path else ""
        below = {name: entry for name, entry in tree.items() if name.startswith(start)}
        if path and not below:
            raise no_entry(path)
        found: dict[str, dict[str, Any]] = {}
        for name, entry in below.items():
            inner = PurePosixPath(name.removeprefix(start))
            for parent in [p for p in reversed(inner.parents) if p.name]:
                if recursive or len(parent.parts) == 1:
                    found[start + str(parent)] = folder_item(start + str(parent))
            if recursive or len(inner.parts) == 1:
                found[name] = file_item(name, entry, xet=self.xet)
        return [found[name] for name in sorted(found)]

    def paths(self, revision: str, wanted: list[str]) -> list[dict[str, Any]]:
        """Those of the paths that exist."""
        tree = self.at(revision).tree
        found = []
        for path in wanted:
            if path in tree:
                found.append(file_item(path, tree[path], xet=self.xet))
            elif any(name.startswith(f"{path}/") for name in tree):
                found.append(folder_item(path))
        return found

    def info(self, revision: str, *, blobs: bool) -> dict[str, Any]:
        """What model_info and dataset_info read."""
        commit = self.at(revision)
        siblings: list[dict[str, Any]] = []
        for name, entry in sorted(commit.tree.items()):
            sibling: dict[str, Any] = {"rfilename": name}
            if blobs:
                sibling |= {"size": entry.size, "blobId": entry.oid}
                if entry.lfs:
                    sibling["lfs"] = {**entry.lfs, "sha256": entry.sha256}
            siblings.append(sibling)
        return {
            "_id": git_hash(self.id.encode())[:24],
            "id": self.id,
            **({"modelId": self.id} if self.kind == "model" else {}),
            "author": self.owner,
            "sha": commit.sha,
            "private": self.private,
            "gated": self.gated or False,
            "disabled": False,
            "downloads": 0,
            "likes": 0,
            "tags": [],
            "createdAt": iso(self.created),
            "lastModified": iso(commit.t),
            "usedStorage": sum(stored.size for stored in self.storage.values()),
            "siblings": siblings,
        }


def key_of(kind: str, repo_id: str) -> str:
    """The name of a repository among all kinds: models stand at the root, as on the hub."""
    return repo_id if kind == "model" else f"{kind}s/{repo_id}"


def file_item(path: str, entry: Entry, *, xet: bool = False) -> dict[str, Any]:
    """A file in a listing."""
    item: dict[str, Any] = {
        "type": "file",
        "oid": entry.oid,
        "size": entry.size,
        "path": path,
    }
    if entry.lfs is None:
        return item
    return {**item, "lfs": entry.lfs, **({"xetHash": entry.sha256} if xet else {})}


def folder_item(path: str) -> dict[str, Any]:
    """A folder in a listing."""
    return {"type": "directory", "oid": git_hash(path.encode()), "size": 0, "path": path}


def git_hash(content: bytes) -> str:
    """Git's hash of a blob."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def iso(t: float) -> str:
    """The hub's form of a moment."""
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(t))
    return f"{whole}.{int(t % 1 * 1000):03d}Z"
