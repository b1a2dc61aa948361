"""Ranges of files from the hub over plain HTTP, one connection to each host for each thread.

The hub answers for a large file with the signed address of a storage elsewhere, which takes no
token, and whose address runs out after a while: then the hub is asked for another one.

Not covered: proxies (HTTPS_PROXY); huggingface_hub's own ways know them.
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from urllib.parse import quote, urljoin, urlsplit

from pod.fetch.snapshot import RemoteFile, Snapshot
from pod.fetch.troubles import PASSING, REFUSALS, Busy, DiskFull, after, refusal

TIMEOUT_S = 10.0  # for a connection, and between two bytes
MOST_REDIRECTS = 5
AGENT = "axolotl-runner"


class Source:
    """The files of one hub. Threads share it; each has connections of its own."""

    def __init__(self, endpoint: str, token: str | None, timeout: float = TIMEOUT_S) -> None:
        self._timeout = timeout
        self.endpoint = endpoint.rstrip("/")
        self._token = token
        self._addresses: dict[str, str] = {}
        self._connections = threading.local()

    def address(self, snapshot: Snapshot, file: RemoteFile) -> str:
        """Where the hub itself answers for a file."""
        return f"{self.endpoint}/{page(snapshot)}/resolve/{snapshot.revision}/{quote(file.path)}"

    def where(self, snapshot: Snapshot, file: RemoteFile) -> tuple[str, bool]:
        """The address that gives the content now, and whether it wants the token."""
        with self.read(snapshot, file, 0, min(1, file.size)) as answer:
            answer.read()
        address = self._addresses.get(file.blob)
        return (address, False) if address else (self.address(snapshot, file), True)

    def token_header(self) -> dict[str, str]:
        """The header that shows who asks."""
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    @contextmanager
    def read(
        self, snapshot: Snapshot, file: RemoteFile, start: int, end: int
    ) -> Iterator[http.client.HTTPResponse]:
        """The answer whose body is this range. Raises Refused, or Busy for what may pass."""
        url = self._addresses.get(file.blob) or self.address(snapshot, file)
        try:
            for _ in range(MOST_REDIRECTS):
                answer = self._ask(url, start, end)
                target = answer.getheader("Location")
                if answer.status not in (301, 302, 303, 307, 308) or target is None:
                    break
                answer.read()
                url = urljoin(url, target)
                if _origin(url) != _origin(self.endpoint):
                    self._addresses[file.blob] = url
            self._must_hold(answer, url, snapshot, file, start, end)
            yield answer
        except (OSError, http.client.HTTPException) as error:
            self._hang_up(url)
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskFull(f"{file.path}: the volume is full") from error
            reason = f"{type(error).__name__}: {error}".rstrip(": ")
            raise Busy(f"{file.path}: {reason} from {_host(url)}") from error
        except BaseException:
            self._hang_up(url)
            raise
        if not answer.isclosed():
            self._hang_up(url)  # the rest of the body would be the next answer

    def _must_hold(
        self,
        answer: http.client.HTTPResponse,
        url: str,
        snapshot: Snapshot,
        file: RemoteFile,
        start: int,
        end: int,
    ) -> None:
        """Raise unless the answer is the range that was asked for."""
        status, headers = answer.status, answer.headers
        if status == 206 and str(answer.getheader("Content-Range")).startswith(f"bytes {start}-"):
            return
        if status == 200 and (start, end) == (0, file.size):
            return
        said = f"{file.path}: {status} from {_host(url)}"
        if self._addresses.pop(file.blob, None) is not None and status in REFUSALS:
            raise Busy(f"{said}: the address has run out", 0.0)
        if status in PASSING:
            raise Busy(said, after(dict(headers)))
        if status in REFUSALS:
            what = f"{file.path} of {snapshot.label}"
            raise refusal(
                status,
                dict(headers),
                what=what,
                endpoint=self.endpoint,
                page=page(snapshot),
                has_token=self._token is not None,
            )
        raise Busy(f"{said}, not the range that was asked for")

    def _ask(self, url: str, start: int, end: int) -> http.client.HTTPResponse:
        parts = urlsplit(url)
        connection = self._connection(parts.scheme, parts.netloc)
        headers = {
            "User-Agent": AGENT,
            **({"Range": f"bytes={start}-{end - 1}"} if end > start else {}),
            **(self.token_header() if _origin(url) == _origin(self.endpoint) else {}),
        }
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", target, headers=headers)
        return connection.getresponse()

    def _connection(self, scheme: str, host: str) -> http.client.HTTPConnection:
        known = self._connections.__dict__
        if host not in known:
            known[host] = (
                http.client.HTTPSConnection(host, timeout=self._timeout, context=_certificates())
                if scheme == "https"
                else http.client.HTTPConnection(host, timeout=self._timeout)
            )
        found: http.client.HTTPConnection = known[host]
        return found

    def _hang_up(self, url: str) -> None:
        connection = self._connections.__dict__.pop(urlsplit(url).netloc, None)
        if connection is not None:
            connection.close()


def page(snapshot: Snapshot) -> str:
    """The path of the repository's page."""
    return f"datasets/{snapshot.repo}" if snapshot.kind == "dataset" else snapshot.repo


@cache
def _certificates() -> ssl.SSLContext:
    """The machine's certificates and those that come with Python's HTTP libraries: slim images have
    none of their own.
    """
    context = ssl.create_default_context()
    with contextlib.suppress(ImportError):
        import certifi

        context.load_verify_locations(certifi.where())
    return context


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


def _host(url: str) -> str:
    return urlsplit(url).netloc
