"""Notices that wait to be sent: one file each in a folder that the processes of the control side
share.

Whoever has something to tell leaves it here, which takes a millisecond and needs no network; the
keeper's postman sends it (deployments/postman.py). So no service delays a run, a notice survives
the process that wrote it, and notices of many runs can be gathered.

Contract: a letter that is left again under its name replaces the one that waits; at most MOST of
them wait, then the oldest one goes; nothing here is a secret, for texts are scrubbed and of the
place only the name of a Prefect block is kept.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from runner.notice import Notice

MOST = 500


@dataclass(frozen=True)
class Letter:
    """A notice and how to send it; `t` is when it was left, in Unix seconds.

    `name` tells it from others; `run` is the run that it is about, None for one that is about none;
    `block` names a Prefect block, None means AXR_NOTIFY_URLS. `picture`: the loss curve so far goes
    along, from `curve` where that file is there.
    """

    name: str
    notice: Notice
    run: str | None = None
    block: str | None = None
    picture: bool = False
    curve: str | None = None
    t: float = field(default_factory=time.time)


class Outbox:
    """The letters in one folder, which need not exist yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def leave(self, letter: Letter) -> None:
        """Put a letter in; OSError where the disk takes none."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        waiting = sorted(self.folder.glob("*.json"), key=_age)
        for oldest in waiting[: max(0, len(waiting) - MOST + 1)]:
            oldest.unlink(missing_ok=True)
        path = self._path(letter)
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(asdict(letter)), encoding="utf-8")
        draft.replace(path)

    def letters(self) -> list[Letter]:
        """What waits, oldest first; a file that is no letter is thrown away."""
        found = []
        for path in self.folder.glob("*.json"):
            try:
                plain = json.loads(path.read_text(encoding="utf-8"))
                found.append(Letter(**{**plain, "notice": Notice(**plain["notice"])}))
            except FileNotFoundError:
                continue
            except (ValueError, TypeError, KeyError):
                path.unlink(missing_ok=True)
        return sorted(found, key=lambda letter: letter.t)

    def remove(self, letter: Letter) -> None:
        """Take a letter out, for good."""
        self._path(letter).unlink(missing_ok=True)

    def _path(self, letter: Letter) -> Path:
        return self.folder / f"{hashlib.sha256(letter.name.encode()).hexdigest()[:32]}.json"


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # sent meanwhile
        return 0.0
