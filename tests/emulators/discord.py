"""A strict local Discord webhook: `python -m tests.emulators.discord --port N`.

What is covered
- POST /api/webhooks/{id}/{token}[?wait=true]: JSON or multipart with payload_json and files[n];
  limits of content (2000), embeds (10; title 256, description 4096, 25 fields, 6000 in all) with
  Discord's error bodies; unknown webhook 404, wrong token 401, empty message 400.
- POST /_faults {"status": 429, "times": 2, "retry_after": 0.3} makes the next requests fail so;
  {"hang": 5} holds the answers back for that many seconds; {} clears both.
- GET /_state: what was received, whom it would have pinged, what was refused.
- POST /notify/{name}: the same limits for Apprise's json:// form (title and message as content).
  Apprise's discord:// has its host built in, so another process reaches us by json:// only; a
  test in this process patches NotifyDiscord.notify_url to `Emulator.url`.

Not covered: TLS, threads, components, polls, rate limit buckets; lengths count code points.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import threading
import time
from collections.abc import Iterator
from email import policy
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

WEBHOOK = ("100000000000000001", "emulator-token")

CONTENT_LENGTH = 2000
EMBEDS = 10
EMBEDS_LENGTH = 6000
FIELDS = 25
EMBED_LENGTHS = {"title": 256, "description": 4096}

_PING = re.compile(r"@everyone|@here|<@[!&]?\d+>")


class Refused(Exception):
    """An answer other than success, with Discord's body."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        super().__init__(str(body))
        self.status = status
        self.body = body


class Emulator(ThreadingHTTPServer):
    """The server; `received` and `refused` may be read directly by tests of this process."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.received: list[dict[str, Any]] = []
        self.refused: list[dict[str, Any]] = []
        self.faults: dict[str, Any] = {}

    @property
    def url(self) -> str:
        """What stands for https://discord.com/api/webhooks."""
        return f"http://127.0.0.1:{self.server_port}/api/webhooks"

    def execute_webhook(
        self, webhook_id: str, token: str, message: dict[str, Any], files: list[dict[str, Any]]
    ) -> dict[str, Any]:
        """Take one message or raise Refused."""
        if webhook_id != WEBHOOK[0]:
            raise Refused(404, {"message": "Unknown Webhook", "code": 10015})
        if token != WEBHOOK[1]:
            raise Refused(401, {"message": "Invalid Webhook Token", "code": 50027})
        check_message(message, files)
        pings = _PING.findall(message.get("content") or "")
        if (message.get("allowed_mentions") or {}).get("parse") == []:
            pings = []
        self.received.append({**message, "files": files, "pings": pings})
        return {"id": str(len(self.received)), "type": 0, "content": message.get("content", "")}

    def use_fault(self) -> None:
        """Hang or fail as POST /_faults has asked for."""
        if hang := self.faults.get("hang"):
            time.sleep(hang)
        if "status" not in self.faults or self.faults.get("times", 1) <= 0:
            return
        self.faults["times"] = self.faults.get("times", 1) - 1
        status, after = self.faults["status"], self.faults.get("retry_after", 0.3)
        if status == 429:
            body = {"message": "You are being rate limited.", "retry_after": after, "global": False}
            raise Refused(429, body)
        raise Refused(status, {"message": f"{status}: emulated fault", "code": 0})


@contextlib.contextmanager
def running(port: int = 0) -> Iterator[Emulator]:
    """An emulator in a thread of this process, gone at the end of the block."""
    with Emulator(port) as server:
        # The poll interval is how long shutdown takes.
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def check_message(message: dict[str, Any], files: list[dict[str, Any]]) -> None:
    """Raise Refused as Discord does for a message outside its limits."""
    content, embeds = message.get("content") or "", message.get("embeds") or []
    if not (content.strip() or embeds or files):
        raise Refused(400, {"message": "Cannot send an empty message", "code": 50006})
    errors: dict[str, Any] = {}
    if len(content) > CONTENT_LENGTH:
        errors["content"] = _too_long(CONTENT_LENGTH)
    if len(embeds) > EMBEDS:
        errors["embeds"] = _too_long(EMBEDS)
    for number, embed in enumerate(embeds):
        if found := _embed_errors(embed):
            errors.setdefault("embeds", {})[str(number)] = found
    if sum(map(_embed_length, embeds)) > EMBEDS_LENGTH:
        errors["embeds"] = _too_long(EMBEDS_LENGTH, "MAX_EMBED_SIZE_EXCEEDED")
    if errors:
        raise Refused(400, {"message": "Invalid Form Body", "code": 50035, "errors": errors})


def _embed_errors(embed: dict[str, Any]) -> dict[str, Any]:
    errors = {
        name: _too_long(most)
        for name, most in EMBED_LENGTHS.items()
        if len(embed.get(name) or "") > most
    }
    for place in (embed, embed.get("author") or {}, embed.get("thumbnail") or {}):
        if not str(place.get("url", "https://")).startswith(("http://", "https://")):
            text = "Not a well formed URL."
            errors["url"] = {"_errors": [{"code": "URL_TYPE_INVALID_URL", "message": text}]}
    fields = embed.get("fields") or []
    if len(fields) > FIELDS:
        errors["fields"] = _too_long(FIELDS)
    for field in fields:
        if (
            not 0 < len(field.get("name") or "") <= 256
            or not 0 < len(field.get("value") or "") <= 1024
        ):
            errors["fields"] = _too_long(1024)
    return errors


def _embed_length(embed: dict[str, Any]) -> int:
    fields = "".join(f["name"] + f["value"] for f in embed.get("fields") or [])
    footer, author = embed.get("footer") or {}, embed.get("author") or {}
    own = [embed.get("title"), embed.get("description"), footer.get("text"), author.get("name")]
    return len(fields) + sum(len(text or "") for text in own)


def _too_long(most: int, code: str = "BASE_TYPE_MAX_LENGTH") -> dict[str, Any]:
    return {"_errors": [{"code": code, "message": f"Must be {most} or fewer in length."}]}


class _Handler(BaseHTTPRequestHandler):
    server: Emulator
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path != "/_state":
            return self._answer(404, {"message": "404: Not Found", "code": 0})
        return self._answer(200, {"received": self.server.received, "refused": self.server.refused})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        address = urlsplit(self.path)
        if address.path == "/_faults":
            self.server.faults = json.loads(body or b"{}")
            return self._answer(200, self.server.faults)
        try:
            self.server.use_fault()
            made = self._post(address.path.strip("/").split("/"), body)
        except Refused as refusal:
            self.server.refused.append({"status": refusal.status, **refusal.body})
            return self._answer(refusal.status, refusal.body)
        wait = parse_qs(address.query).get("wait") == ["true"]
        return self._answer(200, made) if wait else self._answer(204, None)

    def _post(self, parts: list[str], body: bytes) -> dict[str, Any]:
        match parts:
            case ["api", "webhooks", webhook_id, token]:
                message, files = self._message(body)
                return self.server.execute_webhook(webhook_id, token, message, files)
            case ["notify", _]:
                form, files = self._message(body)
                text = f"{form.get('title', '')}\r\n{form.get('message', '')}".strip()
                return self.server.execute_webhook(*WEBHOOK, {"content": text}, files)
            case _:
                raise Refused(404, {"message": "404: Not Found", "code": 0})

    def _message(self, body: bytes) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        kind = self.headers.get("Content-Type", "")
        files: list[dict[str, Any]] = []
        if kind.startswith("multipart/form-data"):
            body, files = _multipart(kind, body)
        elif not kind.startswith("application/json"):
            raise Refused(400, {"message": "Expected application/json", "code": 50109})
        try:
            message = json.loads(body)
        except ValueError as error:
            text = "The request body contains invalid JSON."
            raise Refused(400, {"message": text, "code": 50109}) from error
        return message, files

    def _answer(self, status: int, body: dict[str, Any] | None) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        if status == 429 and body is not None:
            after = body["retry_after"]
            self.send_header("Retry-After", str(after))
            self.send_header("X-RateLimit-Remaining", "0")
            self.send_header("X-RateLimit-Reset", str(int(time.time() + after) + 1))
        self.send_header("Content-Type", "application/json")
        if status != 204:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: what happened is in /_state."""


def _multipart(kind: str, body: bytes) -> tuple[bytes, list[dict[str, Any]]]:
    """The payload_json and the names and sizes of the files of a form."""
    form = BytesParser(policy=policy.HTTP).parsebytes(
        f"Content-Type: {kind}\r\n\r\n".encode() + body
    )
    payload, files = b"{}", []
    for part in form.iter_parts():
        content = part.get_content()
        data = content.encode() if isinstance(content, str) else bytes(content)
        if part.get_filename():
            files.append({"name": part.get_filename(), "size": len(data)})
        elif part.get_param("name", header="Content-Disposition") == "payload_json":
            payload = data
    return payload, files


def main() -> None:
    """Serve until interrupted; the first line says where."""
    parser = argparse.ArgumentParser(description="a local Discord webhook")
    parser.add_argument("--port", type=int, default=0)
    with Emulator(parser.parse_args().port) as server, contextlib.suppress(KeyboardInterrupt):
        print(f"{server.url}/{'/'.join(WEBHOOK)}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
