"""The code that a pod runs, as one archive: what the repository holds, and no secret in it.

A .tar.gz of the repository's files (tracked, and untracked ones that are not ignored), or of one
commit where the run names one that the repository has. Same content, same bytes: sorted, without
times and owners. Archives lie in <AXR_HOME>/bundles/<digest>.tar.gz and are made once.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import stat
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

MOST_BYTES = 256 * 1024 * 1024
KEPT = 8
# Never in a bundle, tracked or not, wherever they lie.
FOLDERS = {
    ".git",
    ".runner",
    ".venv",
    ".venv-axolotl",
    "venv",
    "runs",
    "node_modules",
    "__pycache__",
    "*_cache",
    ".hypothesis",
    "*.egg-info",
    "wandb",
    ".ssh",
}
SECRETS = (
    ".env",
    ".env.*",
    "*.env",
    "*.key",
    "*.pem",
    "*.p12",
    "*.pfx",
    "id_rsa*",
    "id_ed25519*",
    "id_ecdsa*",
    ".netrc",
    ".pypirc",
    ".npmrc",
    ".git-credentials",
    "credentials.json",
)
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


class NoBundle(Exception):
    """The repository can't be sent to a pod; the message says why and what to do."""


@dataclass(frozen=True)
class Item:
    """A file of the bundle; `link` is a symbolic link's target."""

    path: str
    content: bytes
    executable: bool = False
    link: str | None = None


def make_bundle(
    repository: Path, commit: str | None, into: Path, *, most_bytes: int = MOST_BYTES
) -> Path:
    """The archive of the repository's files, or of `commit` where the repository has it.

    Args:
        repository: the runner's own code.
        commit: what the run asked for; one that the repository does not have counts as None.
        into: the folder of archives; whatever lies beside it (the home) is never sent.
        most_bytes: of all files together; NoBundle above it.
    """
    if commit and has_commit(repository, commit):
        items = _of_commit(repository, commit, most_bytes)
    else:
        items = _of_folder(repository, into.parent, most_bytes)
    items = sorted(items, key=lambda item: item.path)
    archive = into / f"{_digest(items)}.tar.gz"
    if not archive.exists():
        into.mkdir(parents=True, exist_ok=True)
        _write(items, archive)
        _forget_oldest(into)
    return archive


def has_commit(repository: Path, commit: str) -> bool:
    """True when this is the full name of a commit that the repository has."""
    if not _COMMIT.fullmatch(commit) or not _has_git(repository):
        return False
    return _run_git(repository, "cat-file", "-e", f"{commit}^{{commit}}").returncode == 0


def is_sent(path: str) -> bool:
    """False for what is never in a bundle: version control, environments, caches, secrets."""
    *folders, name = PurePosixPath(path).parts
    if any(fnmatch(folder, pattern) for folder in folders for pattern in FOLDERS):
        return False
    return not any(fnmatch(name.lower(), pattern) for pattern in SECRETS)


def _of_folder(repository: Path, home: Path, most_bytes: int) -> list[Item]:
    found = [
        (path, repository / path)
        for path in _listed(repository)
        if is_sent(path) and not (repository / path).is_relative_to(home)
    ]
    # A file that is tracked but deleted is listed too; `runs` is a link to a folder.
    there = [(path, file) for path, file in found if file.is_symlink() or file.is_file()]
    _check_size([(f.lstat().st_size, path) for path, f in there], most_bytes)
    made = (_item(path, file, repository) for path, file in there)
    return [item for item in made if item is not None]


def _listed(repository: Path) -> list[str]:
    if not _has_git(repository):
        return list(_walked(repository))
    listed = _git(repository, "ls-files", "-z", "-c", "-o", "--exclude-standard")
    return [os.fsdecode(path) for path in set(listed.split(b"\0")) if path]


def _walked(repository: Path) -> Iterator[str]:
    """All files, where there is no git to ask; does not go into folders that are never sent."""
    for folder, folders, files in os.walk(repository):
        inside = Path(folder).relative_to(repository)
        folders[:] = [name for name in folders if is_sent(f"{name}/x")]
        yield from ((inside / name).as_posix() for name in files)


def _item(path: str, file: Path, repository: Path) -> Item | None:
    if file.is_symlink():
        target = os.readlink(file)
        inside = not os.path.isabs(target) and (file.parent / target).resolve().is_relative_to(
            repository.resolve()
        )
        sent = inside and is_sent(os.path.normpath(str(PurePosixPath(path).parent / target)))
        return Item(path, b"", link=target) if sent else None
    return Item(path, file.read_bytes(), bool(file.stat().st_mode & stat.S_IXUSR))


def _of_commit(repository: Path, commit: str, most_bytes: int) -> list[Item]:
    listed = _git(repository, "ls-tree", "-r", "-l", "-z", commit).split(b"\0")
    # mode, type, object and size, a tab, the path
    entries = [entry.partition(b"\t") for entry in listed if entry]
    sizes = [(facts.split()[3], os.fsdecode(path)) for facts, _, path in entries]
    _check_size([(int(size), path) for size, path in sizes if size.isdigit()], most_bytes)
    packed = _git(repository, "archive", "--format=tar", commit)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        members = [m for m in archive if (m.isfile() or m.issym()) and is_sent(m.name)]
        return [_packed_item(archive, member) for member in members]


def _packed_item(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Item:
    if member.issym():
        return Item(member.name, b"", link=member.linkname)
    file = archive.extractfile(member)
    assert file is not None, "it is a file"
    return Item(member.name, file.read(), bool(member.mode & stat.S_IXUSR))


def _check_size(sizes: list[tuple[int, str]], most_bytes: int) -> None:
    total = sum(size for size, _ in sizes)
    if total > most_bytes:
        largest = ", ".join(f"{path} ({size} bytes)" for size, path in sorted(sizes)[:-4:-1])
        raise NoBundle(
            f"the repository has {total} bytes, a pod gets at most {most_bytes}: let git ignore "
            f"what it does not need. The largest: {largest}"
        )


def _digest(items: list[Item]) -> str:
    digest = hashlib.sha256()
    for item in items:
        kind = f"-> {item.link}" if item.link is not None else "x" if item.executable else "-"
        content = hashlib.sha256(item.content).hexdigest()
        digest.update(f"{item.path}\0{kind}\0{content}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:32]


def _write(items: list[Item], archive: Path) -> None:
    """By rename: a bundle with its name is a whole one."""
    descriptor, temporary = tempfile.mkstemp(dir=archive.parent, prefix=".making-")
    try:
        with (
            os.fdopen(descriptor, "wb") as file,
            gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            for item in items:
                _add(tar, item)
        os.rename(temporary, archive)
    except BaseException:
        os.unlink(temporary)
        raise


def _add(tar: tarfile.TarFile, item: Item) -> None:
    member = tarfile.TarInfo(item.path)
    member.mode = 0o755 if item.executable else 0o644
    if item.link is not None:
        member.type, member.linkname = tarfile.SYMTYPE, item.link
    member.size = len(item.content)
    tar.addfile(member, io.BytesIO(item.content))


def _forget_oldest(into: Path) -> None:
    archives = sorted(into.glob("*.tar.gz"), key=lambda file: file.stat().st_mtime)
    for archive in archives[:-KEPT]:
        with suppress(FileNotFoundError):
            archive.unlink()


def _has_git(repository: Path) -> bool:
    return (repository / ".git").exists()


def _git(repository: Path, *arguments: str) -> bytes:
    """What git says. Where it fails nobody knows which files are ignored, so nothing is sent."""
    done = _run_git(repository, *arguments)
    if done.returncode:
        raise NoBundle(f"git {arguments[0]} failed: {done.stderr.decode(errors='replace')[:300]}")
    return done.stdout


def _run_git(repository: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["git", "-C", str(repository), *arguments], capture_output=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoBundle(f"git can't be run: {error}") from error
