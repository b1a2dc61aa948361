"""The process that fetches: `python -m pod.fetch WAY`, its work as one line of JSON on its standard
input, its words on its standard output (pod.fetch.tally). It ends with whoever started it.

    list     {inputs}        the snapshots of these inputs
    ranges   {snapshots}     pieces over many connections
    xet hub  {snapshots}     huggingface_hub, with Xet or without (HF_HUB_DISABLE_XET)
    aria2    {snapshots}     aria2c

Every way ends with a look at each file: what is missing or wrong is an error, whatever the library
says (it may return half a snapshot when the hub is away: huggingface_hub issue 3007).
"""

from __future__ import annotations

import fcntl
import glob
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pod.fetch import aria2
from pod.fetch.cache import Cache
from pod.fetch.floor import WINDOW, WINDOW_NAME
from pod.fetch.inputs import Input
from pod.fetch.ranges import HASHERS, Ranges
from pod.fetch.snapshot import Snapshot
from pod.fetch.source import TIMEOUT_S, Source
from pod.fetch.tally import Tally
from pod.fetch.troubles import Busy, Corrupt, DiskFull, FetchError

ENDPOINT = "https://huggingface.co"
LOCK = ".fetching.lock"


def main(way: str) -> int:
    """Do the work that is written on standard input; 1 when it failed."""
    work = json.loads(sys.stdin.readline())
    _end_with_parent()
    tally = Tally(lambda word: print(word, flush=True))
    if way in ("list", "hub", "xet"):
        import huggingface_hub.hf_api  # noqa: F401  # seconds, which no floor should count
    tally.keep_telling()
    try:
        if way == "list":
            tally.last(done=[s.plain() for s in _listed(work["inputs"])])
        else:
            cache = Cache(Path(work["cache"]))
            _fetch(way, cache, [Snapshot.of(plain) for plain in work["snapshots"]], tally)
            tally.last(done=True)
    except FetchError as error:
        tally.last(error=type(error).__name__, message=str(error))
        return 1
    except Exception as error:  # a library's own: another way may do without it
        full = isinstance(error, OSError) and error.errno == 28
        kind = DiskFull if full else Busy
        message = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        tally.last(error=kind.__name__, message=message)
        return 1
    return 0


def _listed(inputs: Sequence[dict[str, Any]]) -> list[Snapshot]:
    from pod.fetch.listing import Listing  # it takes the library's second to load

    wanted = [
        Input(**{**each, "key": tuple(each["key"]), "data_files": tuple(each["data_files"])})
        for each in inputs
    ]
    return Listing(_endpoint(), _token()).snapshots(wanted)


def _fetch(way: str, cache: Cache, snapshots: Sequence[Snapshot], tally: Tally) -> None:
    ways: dict[str, Callable[[Cache, list[Snapshot], Tally], None]] = {
        "ranges": _by_ranges,
        "xet": _by_library,
        "hub": _by_library,
        "aria2": _by_aria2,
    }
    with _alone(cache, tally):
        missing = [left for s in snapshots if (left := cache.missing(s)).files]
        tally.came(sum(s.bytes for s in snapshots) - sum(s.bytes for s in missing), here=True)
        for snapshot in missing:
            cache.tidy(snapshot)
        if missing:
            ways[way](cache, missing, tally)
        _check(cache, snapshots, tally)


def _by_ranges(cache: Cache, missing: list[Snapshot], tally: Tally) -> None:
    Ranges(cache, _source(), tally).fetch(missing)


def _by_aria2(cache: Cache, missing: list[Snapshot], tally: Tally) -> None:
    aria2.fetch(cache, _source(), tally, missing)


def _by_library(cache: Cache, missing: list[Snapshot], tally: Tally) -> None:
    from huggingface_hub import snapshot_download
    from tqdm import tqdm  # type: ignore[import-untyped]

    class Told(tqdm):  # type: ignore[misc]
        """The library's bars of bytes: of what came over the network, and of what was written."""

        def __init__(self, *args: Any, **more: Any) -> None:
            more.pop("name", None)
            self.counts = more.get("unit") == "B" and "ownloading" in str(more.get("desc"))
            super().__init__(*args, **{**more, "disable": True})

        def update(self, n: float | None = 1) -> bool | None:
            if self.counts:
                tally.came(int(n or 0))
            return bool(super().update(n))

    for snapshot in missing:
        snapshot_download(
            snapshot.repo,
            repo_type=snapshot.kind,
            revision=snapshot.revision,
            allow_patterns=[glob.escape(file.path) for file in snapshot.files],
            cache_dir=cache.folder,
            endpoint=_endpoint(),
            token=_token() or False,
            tqdm_class=Told,
        )


def _check(cache: Cache, snapshots: Sequence[Snapshot], tally: Tally) -> None:
    """Raise unless every file is here and right."""
    for snapshot in snapshots:
        cache.finish(snapshot)
        if left := cache.missing(snapshot).files:
            names = ", ".join(file.path for file in left[:3])
            raise Busy(f"{snapshot.label}: {len(left)} files are missing ({names})")
    single = [snapshot.only([file]) for snapshot in snapshots for file in snapshot.files]
    with ThreadPoolExecutor(HASHERS) as pool:
        wrong = list(pool.map(lambda each: cache.wrong(each, read=tally.checked), single))
    for snapshot, files in zip(single, wrong, strict=True):
        if files:
            raise Corrupt(f"{files[0].path} of {snapshot.label} came with a wrong content")
        cache.tidy(snapshot, whole=True)


@contextmanager
def _alone(cache: Cache, tally: Tally) -> Iterator[None]:
    """One at a time in this cache: a second run that wants the same model waits for the first."""
    cache.folder.mkdir(parents=True, exist_ok=True)
    with (cache.folder / LOCK).open("w") as lock:
        told = threading.Event()

        def wait() -> None:
            while not told.wait(1.0):
                with tally.waiting(5.0):
                    pass

        threading.Thread(target=wait, daemon=True).start()
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        finally:
            told.set()
        yield


def _end_with_parent() -> None:
    """Whoever started this process holds its standard input open for as long as it lives."""

    def wait() -> None:
        sys.stdin.read()
        os._exit(1)

    threading.Thread(target=wait, name="parent", daemon=True).start()


def _source() -> Source:
    """A connection that freezes is made anew, well before that costs the whole way."""
    window = float(os.environ.get(WINDOW_NAME) or WINDOW)
    return Source(_endpoint(), _token(), min(TIMEOUT_S, window / 3))


def _endpoint() -> str:
    return (os.environ.get("HF_ENDPOINT") or ENDPOINT).rstrip("/")


def _token() -> str | None:
    return os.environ.get("HF_TOKEN") or None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
