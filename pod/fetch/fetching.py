"""Fetch snapshots one way after another until everything is here and right.

Each way is a process (`python -m pod.fetch`) that is listened to and ended: a library whose threads
are stuck can't be helped from inside, and Xet is switched off reliably only in the environment (xet
-core issues 800 and 869). A way that brings too little over a window (pod.fetch.floor) is ended.

    xet, xet     as the hub offers it; once more, since both go on where they broke
    ranges, ranges
    hub          huggingface_hub without Xet
    aria2        where it is there

What a refusal or a full disk says holds for every way.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from pod.fetch import aria2
from pod.fetch.cache import Cache, needed
from pod.fetch.floor import LEAST, LEAST_NAME, WINDOW, WINDOW_NAME, Floor
from pod.fetch.inputs import Input
from pod.fetch.snapshot import Snapshot
from pod.fetch.troubles import Busy, DiskFull, NoWay, Refused

REPOSITORY = Path(__file__).resolve().parent.parent.parent
LOOK_EVERY = 0.2
LIST_WITHIN = 900.0
SPARE = 1_000_000_000  # bytes of the volume that stay free
SWITCHED_OFF = ("1", "on", "yes", "true")


@dataclass(frozen=True)
class Standing:
    """How a download stands: bytes here and in all, bytes a second, the way, the file."""

    bytes: int
    total: int
    speed: float
    way: str
    file: str = ""

    @property
    def eta(self) -> float | None:
        """Seconds that are left at this speed."""
        return (self.total - self.bytes) / self.speed if self.speed > 0 else None


@dataclass(frozen=True)
class Fetched:
    """What was fetched, or found here (`way` is "cache"): the record in fetched.json."""

    repo: str
    type: str
    revision: str
    asked: str | None
    files: int
    bytes: int
    seconds: float
    way: str


@dataclass(frozen=True)
class _Try:
    """How one way ended; `error` is "" when all is here, `stalled` when it was ended."""

    way: str
    error: str
    message: str
    file: str
    speed: float


def list_files(
    wanted: Sequence[Input], environment: Mapping[str, str] = os.environ
) -> list[Snapshot]:
    """What these inputs read, as the hub lists it now. Raises Refused or Busy."""
    if not wanted:
        return []
    words: list[dict[str, Any]] = []
    work = {"inputs": [asdict(each) for each in wanted]}
    with _Process("list", work, environment) as process:
        deadline = time.monotonic() + LIST_WITHIN
        while process.alive() and time.monotonic() < deadline:
            words += process.words(LOOK_EVERY)
        words += process.words(LOOK_EVERY)
    last = words[-1] if words else {}
    if "done" in last:
        return [Snapshot.of(plain) for plain in last["done"]]
    raise _raised(last.get("error", ""), last.get("message") or "the hub's listing did not end")


def fetch(
    snapshots: Sequence[Snapshot],
    cache: Cache,
    environment: Mapping[str, str] = os.environ,
    *,
    show: Callable[[Standing], None] = lambda standing: None,
    note: Callable[[str], None] = lambda text: None,
    ways: Sequence[str] | None = None,
) -> list[Fetched]:
    """Bring the snapshots into the cache; what was fetched, in their order.

    Raises Refused, DiskFull, or NoWay with everything that was tried.
    """
    began = time.monotonic()
    todo = [s for s in snapshots if not cache.is_whole(s)]
    before = {s: cache.missing(s) for s in todo}
    _must_fit(cache, [*before.values()])
    brought_by: dict[Snapshot, tuple[str, float]] = {}
    tries: list[_Try] = []
    for way in (ways_of(todo, environment) if ways is None else ways) if todo else ():
        tries.append(_one_way(way, todo, cache, environment, show, note))
        for snapshot in todo:
            if snapshot not in brought_by and cache.is_whole(snapshot):
                brought_by[snapshot] = (way, time.monotonic() - began)
        if not tries[-1].error:
            break
        if tries[-1].error in ("Refused", "DiskFull"):
            raise _raised(tries[-1].error, tries[-1].message)
        note(f"{_told(tries[-1])}; the next way is tried")
    left = [snapshot for snapshot in todo if snapshot not in brought_by]
    if left:
        raise NoWay(_no_way(cache, left[0], tries))
    return [_record(s, before.get(s), brought_by.get(s)) for s in snapshots]


def ways_of(snapshots: Iterable[Snapshot], environment: Mapping[str, str]) -> list[str]:
    """The ways to try, in order."""
    offered = any(file.xet for snapshot in snapshots for file in snapshot.files)
    off = environment.get("HF_HUB_DISABLE_XET", "").lower() in SWITCHED_OFF
    proxy = environment.get("HTTPS_PROXY") or environment.get("https_proxy")
    return [
        *(["xet", "xet"] if offered and not off and find_spec("hf_xet") else []),
        *([] if proxy else ["ranges", "ranges"]),  # it knows no proxies
        "hub",
        *(["hub"] if proxy else []),
        *(["aria2"] if aria2.program() else []),
    ]


def _one_way(
    way: str,
    snapshots: Sequence[Snapshot],
    cache: Cache,
    environment: Mapping[str, str],
    show: Callable[[Standing], None],
    note: Callable[[str], None],
) -> _Try:
    total = sum(snapshot.bytes for snapshot in snapshots)
    floor = Floor(
        float(environment.get(LEAST_NAME) or LEAST), float(environment.get(WINDOW_NAME) or WINDOW)
    )
    work = {"cache": str(cache.folder), "snapshots": [s.plain() for s in snapshots]}
    file, last = "", dict[str, Any]()
    with _Process(way, work, environment) as process:
        while True:
            living = process.alive()
            for word in process.words(LOOK_EVERY):
                if not last:
                    floor.pause()  # it took its time to start
                last = word
                if "note" in word:
                    note(word["note"])
                if "bytes" in word:
                    file = word["file"] or file
                    floor.hear(word["work"])
                    show(Standing(word["bytes"], total, floor.speed, way, file))
                    if word["wait"]:
                        floor.pause()
            if not living:
                break
            if floor.broken:
                limit = f"less than {floor.least / 1e3:.0f} kB/s for {floor.window:.0f} s"
                return _Try(way, "stalled", limit, file, floor.speed)
    if "done" in last:
        return _Try(way, "", "", file, floor.speed)
    message = last.get("message") or f"its process ended with {process.code}"
    return _Try(way, last.get("error") or "Busy", message, file, floor.speed)


class _Process:
    """A fetching process: its words as they come, its end with the block."""

    def __init__(self, way: str, work: Mapping[str, Any], environment: Mapping[str, str]) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", "pod.fetch", way],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_environment(way, environment),
            cwd=REPOSITORY,
            text=True,
        )
        self._words: Queue[dict[str, Any]] = Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(work) + "\n")
        self._child.stdin.flush()  # and left open: its end would be the process's

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.kill()
        self._child.wait()
        self._reader.join()
        for pipe in (self._child.stdin, self._child.stdout):
            assert pipe is not None
            pipe.close()

    @property
    def code(self) -> int | None:
        return self._child.returncode

    def alive(self) -> bool:
        """False when its last word has been heard, too."""
        return self._child.poll() is None or self._reader.is_alive()

    def words(self, seconds: float) -> list[dict[str, Any]]:
        """What it said; waits so long for a first word."""
        found = []
        try:
            found.append(self._words.get(timeout=seconds))
            while True:
                found.append(self._words.get_nowait())
        except Empty:
            return found

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            try:
                self._words.put(json.loads(line))
            except ValueError:  # a library's print
                print(line, end="", file=sys.stderr)


def _environment(way: str, environment: Mapping[str, str]) -> dict[str, str]:
    own = {} if way == "xet" else {"HF_HUB_DISABLE_XET": "1"}
    return {**environment, "PYTHONPATH": str(REPOSITORY), "HF_HUB_DISABLE_TELEMETRY": "1", **own}


def _must_fit(cache: Cache, missing: Sequence[Snapshot]) -> None:
    to_come, free = needed(cache, missing), cache.free()
    if to_come + SPARE > free and to_come:
        names = ", ".join(snapshot.label for snapshot in missing if snapshot.files)
        raise DiskFull(
            f"{names}: {to_come / 1e9:.1f} GB are to come, and {free / 1e9:.1f} GB are free at "
            f"{cache.folder}: set volume_in_gb higher"
        )


def _record(
    snapshot: Snapshot, missing: Snapshot | None, brought: tuple[str, float] | None
) -> Fetched:
    way, seconds = brought or ("cache", 0.0)
    return Fetched(
        snapshot.repo,
        snapshot.kind,
        snapshot.revision,
        snapshot.asked,
        len(snapshot.files),
        missing.bytes if missing else 0,
        round(seconds, 1),
        way if missing and missing.files else "cache",
    )


def _told(one: _Try) -> str:
    at = f" at {one.file}" if one.file and one.file not in one.message else ""
    speed = f", {one.speed / 1e6:.2f} MB/s" if one.error == "stalled" else ""
    return f"{one.way}: {one.message}{at}{speed}"


def _no_way(cache: Cache, snapshot: Snapshot, tries: Sequence[_Try]) -> str:
    missing = cache.missing(snapshot)
    file = (missing.files or snapshot.files)[0]
    tried = "; ".join(map(_told, tries))
    return (
        f"{snapshot.label} can't be fetched: {file.path} of {file.size / 1e6:.1f} MB is not here; "
        f"tried {tried}. Look at the hub's status, or try another machine or cloud"
    )


def _raised(kind: str, message: str) -> Exception:
    kinds = {"Refused": Refused, "DiskFull": DiskFull}
    return kinds.get(kind, Busy)(message)
