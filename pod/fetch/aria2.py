"""The same files with aria2c, a program of its own, where our ways have failed.

Addresses and tokens go through its standard input: a command line is seen by everybody.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence

from pod.fetch.cache import Cache
from pod.fetch.snapshot import RemoteFile, Snapshot
from pod.fetch.source import Source
from pod.fetch.tally import Tally
from pod.fetch.troubles import Busy

CONNECTIONS = 16
_SIZES = re.compile(r"\[#\w+ (?P<number>[\d.]+)(?P<unit>[KMGT]?i?B)/")
_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def program() -> str | None:
    """Where aria2c is, None where it is not."""
    return shutil.which("aria2c")


def fetch(cache: Cache, source: Source, tally: Tally, missing: Sequence[Snapshot]) -> None:
    """All files of these snapshots, one after another; raises Busy with aria2c's own word."""
    for snapshot in missing:
        for file in snapshot.files:
            _fetch(cache, source, tally, snapshot, file)


def _fetch(
    cache: Cache, source: Source, tally: Tally, snapshot: Snapshot, file: RemoteFile
) -> None:
    blob = cache.blob(snapshot, file)
    blob.parent.mkdir(parents=True, exist_ok=True)
    unfinished = blob.with_suffix(".aria2part")
    address, wants_token = source.where(snapshot, file)
    lines = [address, f"  dir={unfinished.parent}", f"  out={unfinished.name}"]
    if wants_token:
        lines += [f"  header={name}: {value}" for name, value in source.token_header().items()]
    aria2c = subprocess.Popen(
        [program() or "aria2c", *_options()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert aria2c.stdin is not None
    assert aria2c.stdout is not None
    aria2c.stdin.write("\n".join(lines) + "\n")
    aria2c.stdin.close()
    so_far, said = 0, ""
    for line in aria2c.stdout:
        now = _bytes_of(line)
        if now is not None and now > so_far:
            tally.came(now - so_far, file=file.path)
            so_far = now
        elif "error" in line.lower() or "status=" in line:
            said = " ".join(line.split())
    if aria2c.wait():
        # Its words may hold the signed address.
        reason = re.sub(r"https?://\S+", "[address]", said)[:200]
        raise Busy(f"{file.path}: aria2c ended with {aria2c.returncode} {reason}")
    tally.came(file.size - so_far, file=file.path)
    unfinished.replace(blob)
    cache.finish(snapshot.only([file]))


def _options() -> list[str]:
    return [
        "--input-file=-",
        f"--max-connection-per-server={CONNECTIONS}",
        f"--split={CONNECTIONS}",
        "--min-split-size=1M",
        "--continue=true",
        "--auto-file-renaming=false",
        "--file-allocation=none",
        "--summary-interval=1",
        "--show-console-readout=false",
        "--console-log-level=warn",
        "--download-result=hide",
        "--max-tries=5",
        "--retry-wait=2",
        "--timeout=20",
        "--no-conf=true",
        f"--stop-with-process={os.getpid()}",
    ]


def _bytes_of(line: str) -> int | None:
    found = _SIZES.search(line)
    return int(float(found["number"]) * _UNITS[found["unit"]]) if found else None
