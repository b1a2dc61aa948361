"""What a pod runs and trains on, as one archive, and no secret in it.

A .tar.gz of the runner's own files (tracked, and untracked ones that are not ignored) and, below
`source/`, of the user's repository at the commit that was pushed, where the run has one. Same
content, same bytes: sorted, without times and owners. Archives lie in
<AXR_HOME>/bundles/<digest>.tar.gz and are made once.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from runner.push.tree import (
    MOST_BYTES,
    Item,
    TooLarge,
    check_size,
    is_sent,
    leads_inside,
)
from runner.sources import SOURCE

KEPT = 8


class NoBundle(Exception):
    """The repository can't be sent to a pod; the message says why and what to do."""


def make_bundle(
    repository: Path,
    source: Sequence[Item],
    into: Path,
    *,
    most_bytes: int = MOST_BYTES,
) -> Path:
    """The archive of the runner's files and of the user's.

    Args:
        repository: the runner's own code.
        source: the user's files at the pushed commit; none for a run that was not pushed.
        into: the folder of archives; whatever lies beside it (the home) is never sent.
        most_bytes: of the runner's files together; NoBundle above it.
    """
    try:
        code = _of_folder(repository, into.parent, most_bytes)
    except TooLarge as error:
        raise NoBundle(str(error)) from error
    below = [replace(item, path=f"{SOURCE}/{item.path}") for item in source]
    own = [item for item in code if not (below and item.path.startswith(f"{SOURCE}/"))]
    items = sorted([*own, *below], key=lambda item: item.path)
    archive = into / f"{_digest(items)}.tar.gz"
    if not archive.exists():
        into.mkdir(parents=True, exist_ok=True)
        _write(items, archive)
        _forget_oldest(into)
    return archive


def _of_folder(repository: Path, home: Path, most_bytes: int) -> list[Item]:
    found = [
        (path, repository / path)
        for path in _listed(repository)
        if is_sent(path) and not (repository / path).is_relative_to(home)
    ]
    # A file that is tracked but deleted is listed too; `runs` is a link to a folder.
    there = [(path, file) for path, file in found if file.is_symlink() or file.is_file()]
    check_size([(f.lstat().st_size, path) for path, f in there], most_bytes)
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
        inside = (file.parent / target).resolve().is_relative_to(repository.resolve())
        return Item(path, b"", link=target) if inside and leads_inside(path, target) else None
    return Item(path, file.read_bytes(), bool(file.stat().st_mode & stat.S_IXUSR))


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
