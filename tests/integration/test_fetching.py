"""Downloads by the real processes and the real huggingface_hub from the hub's emulator."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pod.fetch import aria2
from pod.fetch.cache import Cache, digest_of
from pod.fetch.fetching import Standing, fetch, list_files, ways_of
from pod.fetch.inputs import Input
from pod.fetch.snapshot import Snapshot
from pod.fetch.troubles import Busy, DiskFull, NoWay, Refused
from tests.emulators.hub import Emulator, running
from tests.emulators.testing import until

MODEL = "me/model"
SHARD = 3_000_000
FILES: dict[str, int | str] = {
    "config.json": '{"model_type": "llama"}',
    "tokenizer.json": "{}",
    "model-00001-of-00002.safetensors": SHARD,
    "model-00002-of-00002.safetensors": SHARD + 7,
    "model.safetensors.index.json": "{}",
    "pytorch_model.bin": SHARD,
    "original/consolidated.00.pth": SHARD,
    "README.md": "# Model",
}
NEEDED = 5  # of them
WANTED = Input(MODEL, "model", "weights", key=("base_model",))
STORAGE = "GET /storage"


@pytest.fixture
def hub() -> Iterator[Emulator]:
    with running() as emulator:
        emulator.plant(MODEL, FILES)
        yield emulator


class Pod:
    """What fetches: a cache, variables, what was shown and noted."""

    def __init__(self, hub: Emulator, folder: Path) -> None:
        self.cache = Cache(folder / "hub")
        self.environment = {
            **{name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ},
            "HOME": str(folder),
            "HF_HOME": str(folder / "home"),
            "HF_ENDPOINT": hub.url,
            "HF_TOKEN": "hf_write",
            "AXR_FETCH_FLOOR": "1000",
            "AXR_FETCH_WINDOW": "30",
        }
        self.shown: list[Standing] = []
        self.notes: list[str] = []
        self.heal = lambda: None

    def list(self, *wanted: Input) -> list[Snapshot]:
        return list_files(wanted or [WANTED], self.environment)

    def fetch(self, snapshots: list[Snapshot], *ways: str) -> list[str]:
        """The way that each snapshot came."""
        found = fetch(
            snapshots,
            self.cache,
            self.environment,
            show=self.shown.append,
            note=self.note,
            ways=ways or None,
        )
        return [each.way for each in found]

    def note(self, text: str) -> None:
        """Each trouble is noted, and may heal what caused it."""
        self.notes.append(text)
        self.heal()

    def must_hold(self, snapshots: list[Snapshot]) -> None:
        """Every file is where the libraries look, and right; nothing unfinished is left."""
        for snapshot in snapshots:
            for file in snapshot.files:
                assert digest_of(self.cache.pointer(snapshot, file), file) == file.blob
        left = [p.name for p in self.cache.folder.rglob("*") if p.suffix not in ("", ".lock")]
        assert not [name for name in left if name.endswith(("part", "pieces", "incomplete"))]


@pytest.fixture
def pod(hub: Emulator, tmp_path: Path) -> Pod:
    return Pod(hub, tmp_path)


def gets(hub: Emulator, way: str = "/storage") -> list[dict[str, Any]]:
    """The requests for contents."""
    return [r for r in hub.state["requests"] if r["method"] == "GET" and way in r["path"]]


def test_a_model_comes_once_and_is_found_by_its_name(hub: Emulator, pod: Pod) -> None:
    """Only what is needed; the hub's own library then finds it offline, by branch and by commit;
    the next run fetches nothing.
    """
    (snapshot,) = found = pod.list()
    assert len(snapshot.files) == NEEDED
    assert pod.fetch(found) == ["ranges"]
    pod.must_hold(found)
    script = (
        "import sys; from huggingface_hub import snapshot_download as get; "
        "print(get(sys.argv[1])); print(get(sys.argv[1], revision=sys.argv[2]))"
    )
    offline = {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(pod.cache.folder)}
    said = subprocess.run(
        [sys.executable, "-c", script, MODEL, snapshot.revision],
        env={**pod.environment, **offline},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert said == [str(pod.cache.pointer(snapshot, snapshot.files[0]).parent)] * 2
    before = len(gets(hub))
    assert pod.fetch(found) == ["cache"]
    assert len(gets(hub)) == before
    assert pod.shown[-1].bytes == pod.shown[-1].total == snapshot.bytes


@pytest.mark.parametrize(
    "way",
    [
        "hub",
        pytest.param(
            "aria2",
            marks=pytest.mark.skipif(aria2.program() is None, reason="aria2c is not installed"),
        ),
    ],
)
def test_each_other_way_brings_the_same(pod: Pod, way: str) -> None:
    """Into the same places, checked in the same manner."""
    found = pod.list()
    assert pod.fetch(found, way) == [way]
    pod.must_hold(found)


def test_data_sets_and_models_come_together(hub: Emulator, pod: Pod) -> None:
    """In one go, and a data set only with the files that are asked for."""
    data: dict[str, int | str] = {"README.md": "x", "a.jsonl": "{}\n", "b.jsonl": "{}\n"}
    hub.plant("me/data", data, kind="dataset")
    rows = Input("me/data", "dataset", "data", data_files=("a.jsonl",), key=("datasets", 0))
    found = pod.list(WANTED, rows)
    assert [file.path for file in found[1].files] == ["README.md", "a.jsonl"]
    assert pod.fetch(found) == ["ranges", "ranges"]
    pod.must_hold(found)


def test_a_stall_falls_over_to_another_way(hub: Emulator, pod: Pod) -> None:
    """The connection stays open and the process alive; the bytes tell (H25)."""
    found = pod.list()
    pod.environment["AXR_FETCH_WINDOW"] = "5"
    hub.set([{"match": STORAGE, "times": 999, "stall_after": 0, "stall": 20.0}])
    began = time.monotonic()
    with pytest.raises(NoWay) as caught:
        pod.fetch(found, "ranges")
    assert time.monotonic() - began < 40
    assert "model-00001-of-00002.safetensors of 3.0 MB" in str(caught.value)
    assert "ranges: " in str(caught.value)
    hub.set([{"match": STORAGE, "times": 99, "hang": 20.0}])
    pod.heal = lambda: hub.set([])
    assert pod.fetch(found, "ranges", "hub") == ["hub"]
    pod.must_hold(found)
    assert len(pod.notes) == 2


def test_single_connections_that_freeze_are_made_anew(hub: Emulator, pod: Pod) -> None:
    """The way goes on, with what those have brought."""
    found = pod.list()
    hub.set([{"match": STORAGE, "times": 5, "stall_after": 100_000, "stall": 20.0}])
    assert pod.fetch(found, "ranges") == ["ranges"]
    pod.must_hold(found)
    assert not pod.notes


def test_xet_that_freezes_is_left_for_plain_http(hub: Emulator, pod: Pod) -> None:
    """Once more with it, then without; the library waits for the token of Xet for ever (H25)."""
    hub.repository(MODEL).xet = True
    found = pod.list()
    pod.environment["AXR_FETCH_WINDOW"] = "5"
    assert ways_of(found, {})[:3] == ["xet", "xet", "ranges"]
    assert "xet" not in ways_of(found, {"HF_HUB_DISABLE_XET": "1"})
    hub.set([{"match": "xet-read-token", "times": 99, "hang": 30.0}])
    assert pod.fetch(found, "xet", "ranges") == ["ranges"]
    pod.must_hold(found)


def test_broken_answers_are_gone_on_with(hub: Emulator, pod: Pod) -> None:
    """Nothing comes twice that came once: cut, too short, refused for a moment, run out."""
    found = pod.list()
    hub.set(
        [
            {"match": STORAGE, "times": 3, "cut_after": 100_000},
            {"match": STORAGE, "times": 2, "short": 50_000},
            {"match": STORAGE, "status": 503},
            {"match": STORAGE, "status": 403},
            {"match": "GET /me/model/resolve", "status": 500},
        ]
    )
    assert pod.fetch(found, "ranges") == ["ranges"]
    pod.must_hold(found)


@pytest.mark.parametrize("way", ["ranges", "hub"])
def test_a_wrong_byte_is_found_and_fetched_again(hub: Emulator, pod: Pod, way: str) -> None:
    """By the hash, whatever the library says."""
    found = pod.list()
    hub.set([{"match": STORAGE, "corrupt": 70_000}])
    assert pod.fetch(found, way, way) == [way]
    pod.must_hold(found)


def test_contents_that_stay_wrong_are_never_used(hub: Emulator, pod: Pod) -> None:
    """The error says which file; nothing of it is left to be found."""
    found = pod.list()
    hub.set([{"match": STORAGE, "times": 99, "corrupt": 1}])
    with pytest.raises(NoWay, match=r"model-0000.*wrong content"):
        pod.fetch(found, "ranges", "hub")
    assert pod.cache.missing(found[0]).files


def test_retry_after_is_kept(hub: Emulator, pod: Pod) -> None:
    """A hub that is busy is asked again when it says so, and not before."""
    found = pod.list()
    hub.set([{"match": "GET /me/model/resolve", "times": 1, "status": 429, "retry_after": 3}])
    began = time.monotonic()
    pod.fetch(found, "ranges")
    assert time.monotonic() - began > 3
    pod.must_hold(found)


def test_a_hub_that_fails_half_way_is_no_success(hub: Emulator, pod: Pod) -> None:
    """The library may return the half that it has; the missing shard is an error (H24)."""
    found = pod.list()
    first = found[0].only(f for f in found[0].files if "model-00002" not in f.path)
    pod.fetch([first], "ranges")
    hub.set([{"match": "/api/models|/resolve/|/storage", "times": 999, "status": 503}])
    with pytest.raises(NoWay, match="model-00002-of-00002"):
        pod.fetch(found, "hub")
    hub.set([])
    assert pod.fetch(found) == ["ranges"]
    pod.must_hold(found)


@pytest.mark.parametrize(
    ("repo", "token", "says"),
    [
        ("other/gated", "hf_write", "base_model: other/gated is gated .403.*ask for access at"),
        ("other/gated", "", "base_model: other/gated is gated .401.*set its HF_TOKEN"),
        ("me/none", "hf_write", "base_model: me/none is not on .*404.*HF_TOKEN does not open it"),
        ("me/none", "", "base_model: me/none is not on .*needs an HF_TOKEN"),
        (MODEL, "hf_wrong", "refuses HF_TOKEN .401."),
    ],
)
def test_what_the_hub_refuses_is_said_once(
    hub: Emulator, pod: Pod, repo: str, token: str, says: str
) -> None:
    """What, where and what to do; nothing is tried again."""
    hub.plant("other/gated", {"config.json": "{}"})
    hub.repository("other/gated").gated = "manual"
    pod.environment["HF_TOKEN"] = token
    wanted = Input(repo, "model", "weights", key=("base_model",))
    with pytest.raises(Refused, match=says):
        pod.fetch(pod.list(wanted))
    asked = [r for r in hub.state["requests"] if repo in r["path"]]
    assert len(asked) <= 4
    assert not pod.notes


def test_a_missing_revision_is_refused(pod: Pod) -> None:
    """With the revision in the sentence."""
    wanted = Input(MODEL, "model", "weights", revision="v9", key=("base_model",))
    with pytest.raises(Refused, match="me/model at v9 has no such revision"):
        pod.list(wanted)


def test_a_hub_that_is_away_is_no_refusal(pod: Pod) -> None:
    """It may come back."""
    pod.environment["HF_ENDPOINT"] = "http://127.0.0.1:9"
    found = Snapshot(MODEL, "model", "0" * 40)
    with pytest.raises((Busy, NoWay)):
        pod.fetch([found.only(pod_file())], "ranges")


def pod_file() -> list[Any]:
    from pod.fetch.snapshot import RemoteFile

    return [RemoteFile("a.json", 3, "0" * 40)]


def test_a_killed_fetcher_is_gone_on_with(hub: Emulator, pod: Pod) -> None:
    """What came before the kill does not come again; the process never outlives its parent."""
    hub.plant(MODEL, {"model-00001-of-00002.safetensors": 20_000_000})
    found = pod.list()
    hub.rate = 200_000
    script = (
        "import json, os, sys; from pathlib import Path; from pod.fetch.cache import Cache; "
        "from pod.fetch.fetching import fetch; from pod.fetch.snapshot import Snapshot; "
        "work = json.loads(sys.argv[1]); "
        "fetch([Snapshot.of(work['s'])], Cache(Path(work['c'])), os.environ, ways=['ranges'])"
    )
    import json

    work = json.dumps({"s": found[0].plain(), "c": str(pod.cache.folder)})
    parent = subprocess.Popen([sys.executable, "-c", script, work], env=pod.environment)
    part = next(pod.cache.blob(found[0], f) for f in found[0].files if f.size == 20_000_000)
    until(lambda: part.with_suffix(".pieces").exists(), 20)
    until(lambda: len(part.with_suffix(".pieces").read_text().split()) > 6, 20)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    time.sleep(1.0)
    came = part.with_suffix(".pieces").read_text()
    time.sleep(1.0)
    assert part.with_suffix(".pieces").read_text() == came
    hub.rate = None
    before = len(gets(hub))
    assert pod.fetch(found) == ["ranges"]
    pod.must_hold(found)
    pieces = len([line for line in came.split("\n")[1:] if line])
    assert pieces >= 5
    assert len(gets(hub)) - before <= 20_000_000 // 524_288 + 8 - pieces + 8


def test_two_runs_fetch_a_model_once(hub: Emulator, pod: Pod) -> None:
    """The second one waits for the first, and finds everything."""
    from threading import Thread

    found = pod.list()
    hub.rate = 400_000
    other = Thread(target=pod.fetch, args=(found, "ranges"))
    other.start()
    pod.fetch(found, "ranges")
    other.join()
    pod.must_hold(found)
    size = sum(1 for _ in gets(hub))
    assert size <= 2 * (SHARD // 524_288 + 1)


def test_a_volume_that_is_too_small_is_told_before(
    hub: Emulator, pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is begun (H41)."""
    found = pod.list()
    monkeypatch.setattr(Cache, "free", lambda self: 1_000_000_100)
    before = len(gets(hub))
    with pytest.raises(DiskFull, match=r"me/model: 0\.0 GB are to come, and 1\.0 GB are free"):
        pod.fetch(found)
    assert len(gets(hub)) == before
