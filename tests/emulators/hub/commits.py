"""How files get into a repository: preupload says in which way, the commit's lines do it."""

from __future__ import annotations

import base64
import binascii
import fnmatch
import json
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

from tests.emulators.hub.cards import errors_of
from tests.emulators.hub.problems import Refused
from tests.emulators.hub.repository import (
    LFS_SUFFIXES,
    REGULAR_MOST,
    Commit,
    Entry,
    Repository,
)

MOST_FILES = 256  # of one preupload


def preupload(repo: Repository, revision: str, asked: dict[str, Any]) -> dict[str, Any]:
    """For each file: is it large, is it ignored, and what is there under its name."""
    tree = repo.at(revision).tree
    files = asked.get("files")
    if not isinstance(files, list) or not 0 < len(files) <= MOST_FILES:
        raise Refused(400, f'"files" must be a list of 1 to {MOST_FILES} files')
    known = tree.get(".gitignore")
    ignore = asked.get("gitIgnore")
    if ignore is None:
        ignore = known.content.decode() if known is not None and known.content else ""
    answer = []
    for file in files:
        path, size, sample = _described(file)
        item: dict[str, Any] = {
            "path": path,
            "uploadMode": "lfs" if _is_large(path, size, sample) else "regular",
            "shouldIgnore": _is_ignored(path, ignore),
        }
        if path in tree:
            item["oid"] = tree[path].sha256 or tree[path].oid
        answer.append(item)
    return {"files": answer, "commitOid": repo.head.sha}


def commit(repo: Repository, revision: str, body: bytes, author: str) -> Commit:
    """Do the lines of a commit, all or none."""
    lines = [_line(text) for text in body.splitlines()]
    if not lines or lines[0][0] != "header":
        raise Refused(400, "the first line must be the header")
    header = lines[0][1]
    if not str(header.get("summary") or "").strip():
        raise Refused(400, "the commit has no summary")
    parent = header.get("parentCommit")
    if revision != "main":
        raise Refused(400, "only the branch main is emulated")
    if parent is not None and parent != repo.head.sha:
        raise Refused(412, "A commit has happened since. Please refresh and try again.")
    if len(lines) == 1:
        raise Refused(400, "the commit has no operations")
    tree = dict(repo.head.tree)
    for key, value in lines[1:]:
        if key not in _OPERATIONS:
            raise Refused(400, f"unknown key of a line: {key!r}")
        _OPERATIONS[key](repo, tree, value)
    return repo.commit(str(header["summary"]), str(header.get("description") or ""), author, tree)


def _add(repo: Repository, tree: dict[str, Entry], value: dict[str, Any]) -> None:
    path = _path(value)
    if value.get("encoding") != "base64":
        raise Refused(400, f"{path}: the content must be base64")
    try:
        content = base64.b64decode(value["content"], validate=True)
    except (binascii.Error, KeyError, TypeError) as error:
        raise Refused(400, f"{path}: no base64: {error}") from error
    if len(content) > REGULAR_MOST:
        raise Refused(
            400, f"Your push was rejected: {path} is larger than 10 MiB and needs git-lfs"
        )
    if path == "README.md" and (errors := errors_of(content.decode("utf-8", "replace"))):
        raise Refused(400, f"Invalid metadata in README.md. {'; '.join(errors)}")
    _put(tree, path, Entry(len(content), content))


def _add_large(repo: Repository, tree: dict[str, Entry], value: dict[str, Any]) -> None:
    path, sha256 = _path(value), str(value.get("oid"))
    stored = repo.storage.get(sha256)
    if value.get("algo") != "sha256" or stored is None:
        raise Refused(
            400,
            "Your push was rejected because an LFS pointer pointed to a file that does not exist "
            f"({path}, {sha256})",
        )
    if value.get("size", stored.size) != stored.size:
        raise Refused(400, f"{path}: the pointer has another size than the file")
    repo.storage[sha256] = type(stored)(stored.size, stored.t, stored.filename or path)
    _put(tree, path, Entry(stored.size, sha256=sha256))


def _delete(repo: Repository, tree: dict[str, Entry], value: dict[str, Any]) -> None:
    path = _path(value)
    if path not in tree:
        raise Refused(404, f"A file with this name doesn't exist: {path}", "EntryNotFound")
    del tree[path]


def _delete_folder(repo: Repository, tree: dict[str, Entry], value: dict[str, Any]) -> None:
    path = _path(value).rstrip("/")
    below = [name for name in tree if name.startswith(f"{path}/")]
    if not below:
        raise Refused(404, f"A folder with this name doesn't exist: {path}", "EntryNotFound")
    for name in below:
        del tree[name]


_OPERATIONS: dict[str, Callable[[Repository, dict[str, Entry], dict[str, Any]], None]] = {
    "file": _add,
    "lfsFile": _add_large,
    "deletedFile": _delete,
    "deletedFolder": _delete_folder,
}


def _put(tree: dict[str, Entry], path: str, entry: Entry) -> None:
    if any(name.startswith(f"{path}/") for name in tree):
        raise Refused(400, f"{path} is a folder already")
    if any(str(parent) in tree for parent in PurePosixPath(path).parents):
        raise Refused(400, f"a parent of {path} is a file")
    tree[path] = entry


def _line(text: bytes) -> tuple[str, dict[str, Any]]:
    try:
        line = json.loads(text)
        return str(line["key"]), dict(line["value"])
    except (ValueError, KeyError, TypeError) as error:
        raise Refused(400, f"no line of a commit: {text[:80]!r}") from error


def _path(value: dict[str, Any]) -> str:
    path = str(value.get("path") or "")
    parts = PurePosixPath(path).parts
    if not path or path.startswith("/") or {"..", ".git"} & set(parts) or "//" in path:
        raise Refused(400, f"invalid path: {path!r}")
    return path


def _described(file: Any) -> tuple[str, int, bytes]:
    try:
        sample = base64.b64decode(file["sample"], validate=True)
        size = int(file["size"])
    except (KeyError, TypeError, ValueError) as error:
        raise Refused(400, f"a file needs path, size and sample: {error}") from error
    if len(sample) != min(size, 512):
        raise Refused(400, f"the sample of {file['path']} has {len(sample)} of {size} bytes")
    return _path(file), size, sample


def _is_large(path: str, size: int, sample: bytes) -> bool:
    if size > REGULAR_MOST or path.endswith(LFS_SUFFIXES):
        return True
    if b"\0" in sample:
        return True
    for cut in range(4):  # the sample may end within a character
        try:
            sample[: len(sample) - cut].decode()
        except UnicodeDecodeError:
            continue
        return False
    return True


def _is_ignored(path: str, ignore: str) -> bool:
    rules = [line.strip() for line in ignore.splitlines()]
    names = [path, *PurePosixPath(path).parts]
    return any(
        fnmatch.fnmatch(name, rule.strip("/"))
        for rule in rules
        if rule and not rule.startswith("#")
        for name in names
    )
