"""What the handlers of the API and of the storage share, and the storage's."""

from __future__ import annotations

from http.server import ThreadingHTTPServer
from typing import TYPE_CHECKING, cast

from tests.emulators.hub.faults import NONE, Fault
from tests.emulators.hub.problems import Refused
from tests.emulators.hub.wire import Wire

if TYPE_CHECKING:
    from tests.emulators.hub.server import Emulator


class Server(ThreadingHTTPServer):
    """One of the two servers."""

    daemon_threads = True
    request_queue_size = 64
    hub: Emulator


class Handler(Wire):
    """A request to the hub or its storage."""

    @property
    def hub(self) -> Emulator:
        return cast(Server, self.server).hub

    def take_fault(self, method: str, path: str) -> Fault:
        return NONE if path.startswith("/_") else self.hub.faults.take(method, path)

    @property
    def rate(self) -> float | None:
        return self.hub.rate

    def note(self, method: str, path: str, status: int) -> None:
        if not path.startswith("/_"):
            self.hub.requests.append({"method": method, "path": path, "status": status})


class Files(Handler):
    """The storage."""

    def route(self, method: str, path: str) -> None:
        storage = self.hub.storage
        storage.check_signature(path, self.query, self.headers)
        match method, self.words:
            case "PUT", ["storage", "upload", upload, part]:
                etag = storage.put(upload, int(part), self.announced, self.blocks())
                self.start(200, 0, {"ETag": etag})
            case "GET" | "HEAD", ["storage", "blob", oid] if storage.blob(oid).is_file():
                blob = storage.blob(oid)
                self.send_file(blob, blob.stat().st_size, {"ETag": f'"{oid}"'})
            case _:
                raise Refused(404, "NoSuchKey")
