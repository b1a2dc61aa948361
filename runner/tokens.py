"""Tokens that need no table: what a caller may do is in the token, signed with the gateway's key.

`axr1.<claims>.<mac>`: the claims are a small JSON in base64url, the mac is HMAC-SHA256 over them.
A token can't be called back before its end; a new key (delete <AXR_HOME>/gateway.key) ends all.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import os
import re
import secrets
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

POOL = "pods"
KEY_BYTES = 32
# Longer than any token of ours: a repository's name has at most 140 characters.
LONGEST = 600

_MARK = "axr1"
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,38}/(?!\.+$)[A-Za-z0-9._-]{1,100}")


@dataclass(frozen=True)
class Token:
    """A caller: a pod of `run`, or a pusher of `repository`; until `expires` (unix s)."""

    kind: Literal["pod", "push"]
    subject: str
    expires: int

    @property
    def run(self) -> str:
        """The run of a pod's token."""
        assert self.kind == "pod", "only a pod's token has a run"
        return self.subject

    @property
    def repository(self) -> str:
        """owner/name of a pusher's token."""
        assert self.kind == "push", "only a pusher's token has a repository"
        return self.subject

    @property
    def queue(self) -> str:
        """The only work queue of the pod's worker."""
        return f"axr-{self.run}"

    @property
    def worker(self) -> str:
        """The only name of the pod's worker."""
        return f"pod-{self.run}"


def gateway_key(path: Path) -> bytes:
    """The secret key in this file; made when it is missing, by whoever comes first.

    SystemExit when the file holds no key: signing with a part of one must not happen.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "w") as file:  # mkstemp gives it the mode 0600
                file.write(secrets.token_hex(KEY_BYTES))
                file.flush()
                os.fsync(file.fileno())
            _link(Path(temporary), path)
        finally:
            os.unlink(temporary)
    try:
        key = bytes.fromhex(path.read_text().strip())
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise SystemExit(f"{path} holds no key; delete it to get a new one (it ends all tokens)")
    return key


def pod_token(key: bytes, run: str, expires: float) -> str:
    """A token for the pod of this run (a flow run's id), until `expires` (unix s)."""
    return _sign(key, Token("pod", str(UUID(run)), int(expires)))


def push_token(key: bytes, repository: str, expires: float) -> str:
    """A token that can only report pushes to this repository (owner/name), until `expires`."""
    if not is_repository(repository):
        raise ValueError(f"a repository is owner/name, not {repository!r}")
    return _sign(key, Token("push", repository, int(expires)))


def is_repository(name: object) -> bool:
    """True for owner/name as GitHub allows it."""
    return isinstance(name, str) and _REPOSITORY.fullmatch(name) is not None


def read_token(key: bytes, text: str, now: float) -> Token | None:
    """What this token allows; None when it is not ours, was changed or has ended."""
    mark, _, rest = text.partition(".")
    claims, _, mac = rest.partition(".")
    if mark != _MARK or len(text) > LONGEST or not text.isascii():
        return None
    if not hmac.compare_digest(_mac(key, claims), mac):
        return None
    token = _parse(claims)
    return token if token and now < token.expires else None


def _link(made: Path, path: Path) -> None:
    """Give the key its name unless somebody else was first; nobody ever sees half of one."""
    try:
        os.link(made, path)
    except FileExistsError:
        return


def _sign(key: bytes, token: Token) -> str:
    what = "run" if token.kind == "pod" else "repository"
    claims = {"kind": token.kind, what: token.subject, "expires": token.expires}
    text = _encode(json.dumps(claims, separators=(",", ":")).encode())
    return f"{_MARK}.{text}.{_mac(key, text)}"


def _parse(claims: str) -> Token | None:
    """The signed claims; None for claims of another version of this program."""
    try:
        found: Any = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
        match found:
            case {"kind": "pod", "run": str(run), "expires": int(expires)}:
                return Token("pod", str(UUID(run)), expires)
            case {"kind": "push", "repository": str(repository), "expires": int(expires)}:
                return Token("push", repository, expires)
    except (ValueError, binascii.Error):
        pass  # signed, but not by this version: as good as none
    return None


def _mac(key: bytes, claims: str) -> str:
    return _encode(hmac.new(key, f"{_MARK}.{claims}".encode(), hashlib.sha256).digest())


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
