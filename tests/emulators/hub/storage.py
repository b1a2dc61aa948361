"""Large files: the LFS protocol of the hub, and the storage behind it with its signed addresses."""

from __future__ import annotations

import hashlib
import math
import random
import secrets
import shutil
import threading
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.emulators.hub.problems import Refused
from tests.emulators.hub.repository import Repository, Stored

MULTIPART_OVER = 32 * 1024 * 1024
CHUNK = 8 * 1024 * 1024
MOST_OBJECTS = 1000  # of one batch
SPACED, MARK = 1024 * 1024, 4096  # of planted files


@dataclass
class Upload:
    """A file that is on its way, in one piece (`chunk` 0) or in parts."""

    repo: str
    oid: str
    size: int
    chunk: int = 0
    parts: dict[int, str] = field(default_factory=dict)


class Storage:
    """Files by their hash in a folder, and uploads that are not finished."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.uploads: dict[str, Upload] = {}
        self.multipart_over = MULTIPART_OVER
        self.chunk = CHUNK
        self._secret = secrets.token_hex(8)
        self._lock = threading.Lock()
        home.mkdir(parents=True, exist_ok=True)

    def blob(self, oid: str) -> Path:
        """Where a file lies."""
        return self.home / oid

    def plant(self, seed: str, size: int) -> str:
        """Make a file of this size whose content follows from the seed; its hash.

        Its bytes are random at the beginning of each SPACED bytes and holes of the disk between.
        """
        chance = random.Random(seed)
        made = self.home / f"planted.{uuid.uuid4().hex}"
        with made.open("w+b") as file:
            file.truncate(size)
            for start in range(0, size, SPACED):
                file.seek(start)
                file.write(chance.randbytes(min(MARK, size - start)))
            file.seek(0)
            oid = hashlib.file_digest(file, "sha256").hexdigest()
        made.replace(self.blob(oid))
        return oid

    def signed(self, address: str) -> str:
        """The address with its signature."""
        return f"{address}?signature={self._signature(urlsplit(address).path)}"

    def check_signature(self, path: str, query: dict[str, list[str]], headers: Any) -> None:
        """Raise Refused as S3 does for an address that was not signed, or not only."""
        if headers.get("Authorization"):
            raise Refused(400, "InvalidArgument: Only one auth mechanism allowed")
        if query.get("signature") != [self._signature(path)]:
            raise Refused(403, "SignatureDoesNotMatch")

    def batch(
        self, repo: Repository, asked: dict[str, Any], *, hub: str, storage: str
    ) -> dict[str, Any]:
        """Where to send each file, nothing for those that are there."""
        objects = asked.get("objects")
        if asked.get("operation") != "upload" or asked.get("hash_algo") != "sha256":
            raise Refused(422, "only uploads with sha256")
        if "basic" not in asked.get("transfers", ["basic"]):
            raise Refused(422, "only basic and multipart transfers are emulated")
        if not isinstance(objects, list) or not 0 < len(objects) <= MOST_OBJECTS:
            raise Refused(422, f"1 to {MOST_OBJECTS} objects")
        answer = []
        for item in objects:
            oid, size = str(item["oid"]), int(item["size"])
            if size <= 0:
                raise Refused(422, f"{oid}: an empty file is no LFS file")
            made: dict[str, Any] = {"oid": oid, "size": size}
            if oid not in repo.storage:
                made["authenticated"] = True
                made["actions"] = self._actions(repo, oid, size, hub, storage)
            answer.append(made)
        return {"transfer": "multipart", "objects": answer}

    def put(self, upload_id: str, part: int, size: int | None, content: Iterable[bytes]) -> str:
        """Take a file, or one part of it; its ETag."""
        upload = self._upload(upload_id)
        expected = upload.size
        if upload.chunk:
            count = math.ceil(upload.size / upload.chunk)
            if not 1 <= part <= count:
                raise Refused(400, "InvalidPartNumber")
            last = upload.size - (count - 1) * upload.chunk
            expected = last if part == count else upload.chunk
        if size is None:
            raise Refused(411, "MissingContentLength")
        if size != expected:
            raise Refused(400, f"{size} bytes are announced, {expected} were to come")
        path = self.home / f"{upload_id}.{part}"
        unfinished = self.home / f"{upload_id}.{part}.{uuid.uuid4().hex}"
        digest = hashlib.md5()
        try:
            with unfinished.open("wb") as file:
                for block in content:
                    digest.update(block)
                    file.write(block)
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
        if not upload.chunk:
            self._finish(upload_id, upload, [path])
        upload.parts[part] = f'"{digest.hexdigest()}"'
        return upload.parts[part]

    def complete(self, upload_id: str, asked: dict[str, Any]) -> None:
        """Put the parts together; they must be named in order with their ETags."""
        upload = self._upload(upload_id)
        named = {int(p["partNumber"]): str(p["etag"]) for p in asked.get("parts", [])}
        count = math.ceil(upload.size / upload.chunk)
        if asked.get("oid") != upload.oid or list(named) != list(range(1, count + 1)):
            raise Refused(400, "InvalidPartOrder")
        if named != {number: upload.parts.get(number) for number in named}:
            raise Refused(400, "InvalidPart")
        self._finish(upload_id, upload, [self.home / f"{upload_id}.{n}" for n in named])

    def verify(self, repo: Repository, asked: dict[str, Any]) -> None:
        """The end of an upload: from here on the repository has the file."""
        path = self.blob(str(asked.get("oid")))
        if not path.is_file() or path.stat().st_size != asked.get("size"):
            raise Refused(404, "Object does not exist or has another size")
        repo.storage.setdefault(path.name, Stored(path.stat().st_size, time.time()))

    def _actions(
        self, repo: Repository, oid: str, size: int, hub: str, storage: str
    ) -> dict[str, Any]:
        upload_id = uuid.uuid4().hex
        verify = {
            "href": f"{hub}/{repo.key}.git/info/lfs/objects/verify",
            "header": {"X-Verify": "emulated"},
        }
        chunk = self.chunk if size > self.multipart_over else 0
        with self._lock:
            self.uploads[upload_id] = Upload(repo.key, oid, size, chunk)
        if not chunk:
            address = self.signed(f"{storage}/storage/upload/{upload_id}/0")
            return {"upload": {"href": address}, "verify": verify}
        parts = {
            f"{number:05d}": self.signed(f"{storage}/storage/upload/{upload_id}/{number}")
            for number in range(1, math.ceil(size / chunk) + 1)
        }
        return {
            "upload": {
                "href": self.signed(f"{hub}/api/complete_multipart/{upload_id}"),
                "header": {"chunk_size": str(chunk), **parts},
            },
            "verify": verify,
        }

    def _finish(self, upload_id: str, upload: Upload, pieces: list[Path]) -> None:
        whole = self.home / f"{upload_id}.whole"
        with whole.open("wb") as file:
            for piece in pieces:
                with piece.open("rb") as part:
                    shutil.copyfileobj(part, file)
        with whole.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        for piece in pieces:
            piece.unlink()
        if found != upload.oid:
            whole.unlink()
            raise Refused(400, "BadDigest: the content is not what its oid says")
        whole.replace(self.blob(upload.oid))
        with self._lock:
            self.uploads.pop(upload_id, None)

    def _upload(self, upload_id: str) -> Upload:
        upload = self.uploads.get(upload_id)
        if upload is None:
            raise Refused(404, "NoSuchUpload")
        return upload

    def _signature(self, path: str) -> str:
        return hashlib.sha1(f"{self._secret}{path}".encode()).hexdigest()
