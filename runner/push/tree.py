"""The files of one commit, to the byte, as pods get them: without secrets, links that lead out, and
submodules.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from runner.errors import RunnerError
from runner.push.git import Git

MOST_BYTES = 256 * 1024 * 1024
# Never sent, tracked or not, wherever they lie.
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
LFS = b"version https://git-lfs.github.com/spec/"


class TooLarge(RunnerError):
    """A pod gets no more than so many bytes; the message names the largest files."""


@dataclass(frozen=True)
class Item:
    """A file; `link` is a symbolic link's target."""

    path: str
    content: bytes
    executable: bool = False
    link: str | None = None


def is_sent(path: str) -> bool:
    """False for what no pod gets: version control, environments, caches, secrets."""
    *folders, name = PurePosixPath(path).parts
    if any(fnmatch(folder, pattern) for folder in folders for pattern in FOLDERS):
        return False
    return not any(fnmatch(name.lower(), pattern) for pattern in SECRETS)


def leads_inside(path: str, target: str) -> bool:
    """True for a link inside the repository to something that is sent."""
    whole = os.path.normpath(str(PurePosixPath(path).parent / target))
    return not os.path.isabs(target) and not whole.startswith("..") and is_sent(whole)


def check_size(sizes: list[tuple[int, str]], most_bytes: int) -> None:
    """TooLarge when the files have more bytes together."""
    total = sum(size for size, _ in sizes)
    if total > most_bytes:
        largest = ", ".join(f"{path} ({size} bytes)" for size, path in sorted(sizes)[:-4:-1])
        raise TooLarge(
            f"the repository has {total} bytes, a pod gets at most {most_bytes}: let git ignore "
            f"what it does not need. The largest: {largest}"
        )


def items_of_commit(git: Git, commit: str, *, most_bytes: int = MOST_BYTES) -> list[Item]:
    """The files of the commit, sorted; TooLarge, GitError."""
    entries = []
    for line in git.run("ls-tree", "-r", "-l", "-z", commit).split(b"\0"):
        facts, _, name = line.partition(b"\t")
        path = os.fsdecode(name)
        if line and facts.split()[1] == b"blob" and is_sent(path):
            words = facts.split()
            entries.append((path, words[0].decode(), words[2], int(words[3])))
    check_size([(size, path) for path, _, _, size in entries], most_bytes)
    asked = b"".join(blob + b"\n" for _, _, blob, _ in entries)
    answer = memoryview(git.run("cat-file", "--batch", stdin=asked, timeout=300))
    items, at = [], 0
    for path, mode, blob, size in entries:
        at += len(blob) + len(" blob ") + len(str(size)) + 1
        content = bytes(answer[at : at + size])
        at += size + 1
        if mode != "120000":
            items.append(Item(path, content, mode == "100755"))
        elif leads_inside(path, target := os.fsdecode(content)):
            items.append(Item(path, b"", link=target))
    return sorted(items, key=lambda item: item.path)


def write_items(items: list[Item], folder: Path) -> None:
    """Put the files into an empty folder."""
    for item in items:
        file = folder / item.path
        file.parent.mkdir(parents=True, exist_ok=True)
        if item.link is not None:
            file.symlink_to(item.link)
            continue
        file.write_bytes(item.content)
        file.chmod(0o755 if item.executable else 0o644)
