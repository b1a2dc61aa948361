"""A place: a tree of files outside of the pod, each under a name with slashes.

    volume            the run's own volume; AXR_STORE_VOLUME names another mount
    file:///path, /path   a folder
    s3://bucket/path  AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION,
                      AWS_ENDPOINT_URL (any service that speaks S3)
    hf://user/repo    HF_TOKEN, HF_ENDPOINT

Whatever goes wrong there is a StoreError whose text says what, where and what to do about it. All
of them may be tried again later: a bucket may be made, a token renewed, while the run goes on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol
from urllib.parse import urlsplit

BLOCK = 4 * 1024 * 1024


class StoreError(RuntimeError):
    """The place could not do what was asked; nothing is known of how far it came."""


class Changed(StoreError):
    """A local file is not what its checkpoint's ledger recorded; sending it again is no use."""


@dataclass(frozen=True)
class Source:
    """A local file to send; `sha256` is what it must hold, None if nobody knows."""

    path: Path
    sha256: str | None = None


class Place(Protocol):
    """Where the files go. Names have no leading slash and no `..`; sizes are in bytes."""

    url: str

    def check(self) -> None:
        """Raise StoreError unless one may write here; makes what can be made (a repository)."""

    def listing(self, prefix: str) -> dict[str, int]:
        """The names that begin with `prefix` (empty, or with a slash at its end), and sizes."""

    def put(self, files: Mapping[str, Source], *, delete: Sequence[str] = ()) -> None:
        """Send the files in their order, then drop the names in `delete`.

        A place with transactions does it all in one; in others the last file is gone while those
        before it are replaced. Raises Changed when a file reads otherwise than recorded,
        FileNotFoundError when it is not there any more.
        """

    def get(self, name: str, target: Path) -> None:
        """Fetch one file into `target`, whose folder exists; raises KeyError if there is none."""

    def delete(self, names: Sequence[str]) -> None:
        """Drop these files in their order; those that are not there do not matter."""

    def tidy(self, prefix: str) -> None:
        """Free what unfinished uploads and deleted files still occupy under `prefix`."""


def open_place(url: str, environment: Mapping[str, str]) -> Place | None:
    """The place that `url` names, None when it is the run's own volume. Talks to nobody yet.

    Raises StoreError for a text that names no place.
    """
    if url == "volume":
        url = environment.get("AXR_STORE_VOLUME", "")
        if not url:
            return None
    if url.startswith("/"):
        url = f"file://{url}"
    parts = urlsplit(url)
    words = [word for word in parts.path.split("/") if word]
    if parts.scheme == "file" and parts.path.startswith("/"):
        from pod.store.folder import FolderPlace

        return FolderPlace(Path(parts.path))
    if parts.scheme == "s3" and parts.netloc:
        from pod.store.s3 import S3Place  # not installed on pods that use another store

        return S3Place(parts.netloc, "/".join(words), environment)
    if parts.scheme == "hf" and parts.netloc and words:
        from pod.store.hub import HubPlace  # its import costs half a second

        return HubPlace(f"{parts.netloc}/{words[0]}", "/".join(words[1:]), environment)
    raise StoreError(
        f"checkpoint_store {url!r} names no place: use hf://user/repository, s3://bucket/path or "
        "volume"
    )


def copy_checked(
    source: BinaryIO, target: BinaryIO, name: str, sha256: str | None, *, block: int = BLOCK
) -> None:
    """Copy to the end; raises Changed when what was read does not have this hash."""
    digest = hashlib.sha256()
    while content := source.read(block):
        digest.update(content)
        target.write(content)
    if sha256 is not None and digest.hexdigest() != sha256:
        raise Changed(f"{name} has changed since it was recorded")
