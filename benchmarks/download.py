"""Downloads on the pod against `aria2c -x16 -s16` and plain huggingface_hub, from one server that
limits each connection, as content networks do.

The hub's emulator runs in a process of its own and sends with sendfile. Each item is one pair on
the same server, one after the other, in turns; ours includes the start of its process and the hash
of every byte, which aria2c is not asked for. `one` is one file of BENCH_DOWNLOAD_MB megabytes
(default 2000), `shards` the same in 8 files; `faults` are 8 files of a quarter of that with a
stall, a reset and a wrong byte. Plain huggingface_hub fetches an eighth: it takes many minutes.

Needs aria2c (Debian: aria2). State: benchmarks/state/download/ (delete it to measure anew).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from benchmarks.resumable import STATE, Result, Sleep, Sweep, limit
from pod.fetch.cache import Cache
from pod.fetch.fetching import fetch, list_files
from pod.fetch.inputs import Input

FOLDER = STATE / "download"
MEGABYTES = int(os.environ.get("BENCH_DOWNLOAD_MB") or 2000)
PAIRS, FAULTY = 5, 3
# Bytes a second of a connection: 16 of them make 64 MB/s for one file, 80 make 80 MB/s for eight.
RATES = {"one": 4_000_000, "shards": 1_000_000, "faults": 2_000_000}
AIM = 1.1
PLAIN_WITHIN = 900.0
PLAIN = """
import sys
from huggingface_hub import snapshot_download
snapshot_download(sys.argv[1], cache_dir=sys.argv[2], allow_patterns=["*.safetensors"])
"""

Metrics = dict[str, dict[str, Any]]
Fetch = Callable[[str, Path, Mapping[str, int]], None]


def run(report: Callable[[str], None]) -> Metrics:
    """Go on with the items, and return {metric: {value, unit, target, n}}."""
    if shutil.which("aria2c") is None:
        report("aria2c is not installed (Debian: apt-get install aria2): nothing to compare with")
        return {}
    names = [f"{kind}-{n}" for n in range(1, PAIRS + 1) for kind in ("one", "shards")]
    names += [*(f"faults-{n}" for n in range(1, FAULTY + 1)), "plain-one", "plain-shards"]
    sweep = Sweep(FOLDER / str(MEGABYTES), workers=1)  # two at once would share the machine
    if not all(name in sweep.done() for name in names):
        try:
            sweep.work(names, _item, report, limit_s=limit())
        except KeyboardInterrupt:
            report("stopped; `make bench PART=download` goes on with the rest")
    return metrics(sweep.done())


def metrics(results: Mapping[str, Result]) -> Metrics:
    """Medians over the pairs."""
    found: Metrics = {}

    def of(kind: str) -> list[Result]:
        return [result for name, result in results.items() if name.startswith(f"{kind}-")]

    def put(name: str, value: float, unit: str, target: float | None, n: int) -> None:
        found[name] = {"value": round(value, 3), "unit": unit, "target": target, "n": n}

    for kind in ("one", "shards"):
        if pairs := of(kind):
            put(
                f"{kind}_over_aria2c",
                median(p["ours"] / p["aria2c"] for p in pairs),
                "x",
                AIM,
                len(pairs),
            )
            speed = median(p["megabytes"] / p["ours"] for p in pairs)
            put(f"{kind}_speed", speed, "MB/s", None, len(pairs))
        if plain := results.get(f"plain-{kind}"):
            put(f"{kind}_plain_speed", plain["megabytes"] / plain["seconds"], "MB/s", None, 1)
    if faulty := of("faults"):
        for who in ("ours", "plain"):
            share = 100 * sum(f[f"{who}_right"] for f in faulty) / len(faulty)
            put(f"faults_{who}_right", share, "%", 100.0 if who == "ours" else None, len(faulty))
            put(f"faults_{who}_seconds", median(f[who] for f in faulty), "s", None, len(faulty))
    return found


def _item(name: str, sleep: Sleep) -> Result:
    kind, _, number = name.partition("-")
    with _hub() as hub, TemporaryDirectory(dir=FOLDER) as folder:
        sleep(0)
        place = Path(folder)
        if kind == "plain":
            return _plain_alone(hub, place, number)
        if kind == "faults":
            return _with_faults(hub, place)
        return _pair(hub, place, kind, ours_first=int(number) % 2 == 1)


def _pair(hub: str, place: Path, kind: str, *, ours_first: bool) -> Result:
    files = _files(MEGABYTES, 1 if kind == "one" else 8)
    _plant(hub, files, RATES[kind])
    seconds: dict[str, float] = {}
    for who in ("ours", "aria2c") if ours_first else ("aria2c", "ours"):
        fetch_it = _ours if who == "ours" else _aria2c
        seconds[who] = round(_timed(fetch_it, hub, place, files), 2)
        shutil.rmtree(place / who)
    return {"megabytes": MEGABYTES, **seconds}


def _with_faults(hub: str, place: Path) -> Result:
    files = _files(MEGABYTES // 4, 8)
    commit = _plant(hub, files, RATES["faults"])
    found: Result = {}
    for who, fetch_it in (("ours", _ours), ("plain", _plain)):
        size = min(files.values())
        faults = [
            {"match": "GET /storage", "stall_after": size // 8, "stall": 60.0},
            {"match": "GET /storage", "cut_after": size // 10},
            {"match": "GET /storage", "corrupt": size // 16},
        ]
        httpx.post(f"{hub}/_faults", json={"faults": faults})
        found[who] = round(_timed(fetch_it, hub, place, files), 2)
        found[f"{who}_right"] = _is_right(hub, place / who, files, commit)
        shutil.rmtree(place / who, ignore_errors=True)
    return found


def _plain_alone(hub: str, place: Path, kind: str) -> Result:
    files = _files(MEGABYTES // 8, 1 if kind == "one" else 8)
    _plant(hub, files, RATES[kind])
    return {
        "megabytes": MEGABYTES // 8,
        "seconds": round(_timed(_plain, hub, place, files), 2),
    }


def _ours(hub: str, place: Path, files: Mapping[str, int]) -> None:
    environment = {**os.environ, "HF_ENDPOINT": hub, "HF_TOKEN": ""}
    wanted = [Input("me/model", "model", "weights")]
    fetch(list_files(wanted, environment), Cache(place / "ours"), environment)


def _aria2c(hub: str, place: Path, files: Mapping[str, int]) -> None:
    options = ["-x16", "-s16", "-k1M", "--file-allocation=none", "--no-conf", "--quiet"]
    addresses = [f"{hub}/me/model/resolve/main/{name}" for name in files]
    subprocess.run(
        ["aria2c", *options, f"--dir={place / 'aria2c'}", "--input-file=-"],
        input="\n".join(addresses),
        text=True,
        check=True,
    )


def _plain(hub: str, place: Path, files: Mapping[str, int]) -> None:
    """As a user would call it; what it raises, or when it stands still, is its result."""
    environment = {**os.environ, "HF_ENDPOINT": hub, "HF_HUB_DISABLE_XET": "1", "HF_TOKEN": ""}
    command = [sys.executable, "-c", PLAIN, "me/model", str(place / "plain")]
    try:
        subprocess.run(
            command, env=environment, capture_output=True, timeout=PLAIN_WITHIN, check=False
        )
    except subprocess.TimeoutExpired:
        return


def _is_right(hub: str, cache: Path, files: Mapping[str, int], commit: str) -> bool:
    """Whether each file is in the cache with the content that the hub has."""
    state = httpx.get(f"{hub}/_state").json()["repos"]["me/model"]["files"]
    for name in files:
        path = cache / "models--me--model" / "snapshots" / commit / name
        if not path.is_file():
            return False
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != state[name]["oid"]:
                return False
    return True


def _files(megabytes: int, count: int) -> dict[str, int]:
    size = megabytes * 1_000_000 // count
    if count == 1:
        return {"model.safetensors": size}
    return {f"model-{n:05}-of-{count:05}.safetensors": size for n in range(1, count + 1)}


def _plant(hub: str, files: Mapping[str, int], rate: float) -> str:
    httpx.post(f"{hub}/_rate", json={"bytes_per_second": rate})
    planted = {"repo": "me/model", "files": {**files, "config.json": "{}"}}
    return str(httpx.post(f"{hub}/_plant", json=planted, timeout=600).json()["commit"])


def _timed(work: Fetch, hub: str, place: Path, files: Mapping[str, int]) -> float:
    began = time.monotonic()
    work(hub, place, files)
    return time.monotonic() - began


@contextmanager
def _hub() -> Iterator[str]:
    """The emulator in a process of its own."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=FOLDER) as home:
        command: Sequence[str] = [sys.executable, "-m", "tests.emulators.hub", "--home", home]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()
            server.wait()
