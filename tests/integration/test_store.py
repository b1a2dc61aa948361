"""The checkpoint store over real HTTP: the hub's own client, S3, and the mirror as a process."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pod import events, ledger
from pod.rundir import RunDir, read_json
from pod.store.hub import HubPlace
from pod.store.places import Changed, Place, Source, StoreError, open_place
from pod.store.restore import restore
from runner.settings import RunnerSettings
from tasks.storing import restore_from_store, start_mirror, store_trouble, wait_until_stored
from tests.emulators.hub import Emulator, running
from tests.emulators.hub.testing import environment, files, use_here
from tests.emulators.testing import until
from tests.stores import RUN, make_checkpoint, mirror, settle, stored_steps, train, trained_steps

REPO = "me/run-ckpt"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    with running() as emulator:
        use_here(monkeypatch)
        yield emulator


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path / "vol" / RUN)


def hub_place(hub: Emulator, token: str = "hf_write", url: str = f"hf://{REPO}") -> HubPlace:
    place = open_place(url, {"HF_ENDPOINT": hub.url, "HF_TOKEN": token})
    assert isinstance(place, HubPlace)
    return place


def hub_steps(hub: Emulator) -> list[int]:
    names = files(hub, REPO) if REPO in hub.state["repos"] else {}
    found = [re.fullmatch(rf"{RUN}/checkpoint-(\d+)\.json", name) for name in names]
    return sorted(int(match[1]) for match in found if match)


# -- the hub -------------------------------------------------------------------------------------


def test_a_checkpoint_goes_to_the_hub_in_one_commit_and_comes_back(
    hub: Emulator, run_dir: RunDir, tmp_path: Path
) -> None:
    """Into a private repository that is made for it; large files in parts, manifest and all."""
    hub.storage.multipart_over, hub.storage.chunk = 100_000, 65_536
    train(run_dir, range(1, 34), size=300_000)
    settle(mirror(run_dir, hub_place(hub)))
    repo = hub.state["repos"][REPO]
    assert repo["private"]
    assert repo["commits"] == [
        "initial commit", *(f"Store {RUN}/checkpoint-{step}.json" for step in (30, 20, 10))
    ]  # fmt: skip
    assert any("complete_multipart" in request["path"] for request in hub.requests)
    new = RunDir(tmp_path / "new")
    assert restore(new, hub_place(hub), RUN) == 30
    picked = ledger.pick(new)
    assert picked is not None
    assert picked.step == 30
    assert trained_steps(new)[-1] == (1, 30)
    assert not (new.path / "restore").exists()


def test_what_is_dropped_frees_the_storage_of_the_hub(hub: Emulator, run_dir: RunDir) -> None:
    """In the commit of what takes its place; the history must not hold it either."""
    one = mirror(run_dir, hub_place(hub, url=f"hf://{REPO}/base"), keep=1)
    hub_place(hub).check()
    hub_place(hub).put({"other/model.safetensors": Source(make_file(run_dir.path / "x"))})
    for first in (1, 11, 21):
        train(run_dir, range(first, first + 10))
        settle(one)
    there = files(hub, REPO)
    folders = {name.split("/")[2] for name in there if name.startswith("base/")}
    assert folders == {f"checkpoint-{s}{end}" for s in (10, 30) for end in ("", ".json")} | {
        "state"
    }
    storage = hub.state["repos"][REPO]["storage"]
    large = {facts["oid"] for facts in there.values() if len(facts["oid"]) == 64}
    assert set(storage) == large
    assert "other/model.safetensors" in there


def make_file(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"somebody else's\0")
    return path


@pytest.mark.parametrize(
    ("fault", "waits"),
    [
        ({"match": "/commit/", "status": 429, "retry_after": 7}, [7.0]),
        ({"match": "/commit/", "status": 503, "times": 2}, [2.0, 4.0]),
        ({"match": "/commit/", "lost": True}, [2.0]),
        ({"match": "repos/create", "status": 500}, [2.0]),
    ],
)
def test_a_busy_hub_is_asked_again_when_it_says(
    hub: Emulator, run_dir: RunDir, fault: dict[str, object], waits: list[float]
) -> None:
    """Where its own client would give up; an answer that was lost makes no second commit."""
    train(run_dir, range(1, 11))
    place = hub_place(hub)
    slept: list[float] = []
    place._sleep = slept.append
    hub.set([fault])
    settle(mirror(run_dir, place))
    assert slept == waits
    assert len(hub.state["repos"][REPO]["commits"]) == 2
    assert hub_steps(hub) == [10]


@pytest.mark.parametrize(
    "fault",
    [
        {"match": "PUT /storage", "drop_after": 100_000},
        {"match": "PUT /storage", "status": 500},
        {"match": "objects/batch", "status": 429, "retry_after": 0, "ratelimit": True},
    ],
)
def test_a_broken_upload_is_done_again(
    hub: Emulator, run_dir: RunDir, fault: dict[str, object]
) -> None:
    """The connection ends in the middle of a file; the library waits a second."""
    make_checkpoint(run_dir, 10, size=300_000)
    hub.set([fault])
    settle(mirror(run_dir, hub_place(hub)))
    assert hub_steps(hub) == [10]


@pytest.mark.parametrize("fault", [{"cut_after": 100_000}, {"stall_after": 100_000, "stall": 3}])
def test_a_broken_download_goes_on_where_it_ended(
    hub: Emulator,
    run_dir: RunDir,
    tmp_path: Path,
    fault: dict[str, object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also one that stands still with the connection open (H25)."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.3)
    make_checkpoint(run_dir, 10, size=300_000)
    settle(mirror(run_dir, hub_place(hub)))
    hub.set([{"match": "GET /storage", **fault}])
    assert restore(RunDir(tmp_path / "new"), hub_place(hub), RUN) == 10


@pytest.mark.parametrize(
    ("token", "url", "expected"),
    [
        ("", f"hf://{REPO}", "no token; set HF_TOKEN to one with write access"),
        ("hf_read", f"hf://{REPO}", "the token in HF_TOKEN may only read"),
        ("hf_wrong", f"hf://{REPO}", "401 .*HF_TOKEN is wrong or has run out"),
        ("hf_other", f"hf://{REPO}", "403 .*name another repository"),
        ("hf_write", "hf://other/run-ckpt", "403 .*name another repository"),
    ],
)
def test_a_token_that_does_not_fit_is_told_at_once(
    hub: Emulator, token: str, url: str, expected: str
) -> None:
    """Before the first checkpoint is lost by it."""
    hub_place(hub).check()
    with pytest.raises(StoreError, match=f"checkpoint store {url}.*{expected}"):
        hub_place(hub, token, url).check()


def test_a_hub_that_is_away_is_no_reason_to_start_over(hub: Emulator, run_dir: RunDir) -> None:
    """Nobody answers: an error, not "there is nothing"."""
    place = HubPlace(REPO, "", {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_TOKEN": "hf_write"})
    place._sleep = lambda _: None
    with pytest.raises(StoreError, match=r"at http://127\.0\.0\.1:9: can't write to it: Connect"):
        restore(run_dir, place, RUN)


def test_a_file_that_changed_is_not_sent_to_the_hub(hub: Emulator, run_dir: RunDir) -> None:
    """Its hash is known before the hub hears of it."""
    place = hub_place(hub)
    place.check()
    with pytest.raises(Changed, match="run/x has changed"):
        place.put({"run/x": Source(make_file(run_dir.path / "x"), "0" * 64)})
    assert files(hub, REPO) == {}


# -- S3 ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    moto = pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    given = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    }
    bucket_place(given)._files.call_s3("create_bucket", Bucket="bucket")  # type: ignore[attr-defined]
    yield given
    server.stop()


def bucket_place(given: dict[str, str], url: str = "s3://bucket/deep/er") -> Place:
    place = open_place(url, given)
    assert place is not None
    return place


def test_checkpoints_go_to_s3_and_come_back(
    s3: dict[str, str], run_dir: RunDir, tmp_path: Path
) -> None:
    """Pruned there too, below the path of the task file."""
    place = bucket_place(s3)
    one = mirror(run_dir, place, keep=1)
    for first in (1, 11, 21):
        train(run_dir, range(first, first + 10))
        settle(one)
    folders = {name.split("/")[1] for name in place.listing(f"{RUN}/")}
    assert folders == {"state", *(f"checkpoint-{s}{e}" for s in (10, 30) for e in ("", ".json"))}
    assert bucket_place(s3, "s3://bucket").listing("deep/er/") != {}
    new = RunDir(tmp_path / "new")
    assert restore(new, place, RUN) == 30
    assert ledger.pick(new) is not None
    place.get(f"{RUN}/checkpoint-30.json", tmp_path / "manifest")
    with pytest.raises(KeyError):
        place.get(f"{RUN}/none", tmp_path / "none")


def test_a_large_file_that_changed_leaves_no_parts_in_s3(
    s3: dict[str, str], tmp_path: Path
) -> None:
    """Neither an object nor an upload that nobody sees and everybody pays; nor after a kill."""
    place = bucket_place(s3)
    (tmp_path / "large").write_bytes(bytes(40 * 1024 * 1024))
    with pytest.raises(Changed):
        place.put({"big/x": Source(tmp_path / "large", "0" * 64)})
    assert place.listing("big/") == {}
    unfinished = {"Bucket": "bucket", "Prefix": "deep/er/big/"}
    call = place._files.call_s3  # type: ignore[attr-defined]
    assert not call("list_multipart_uploads", **unfinished).get("Uploads")
    call("create_multipart_upload", Bucket="bucket", Key="deep/er/big/y")
    place.tidy("big/")
    assert not call("list_multipart_uploads", **unfinished).get("Uploads")


@pytest.mark.parametrize(
    ("url", "changes", "expected"),
    [
        ("s3://nobody", {}, "no bucket nobody; make it, or name another one"),
        ("s3://bucket", {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "can't write to it"),
    ],
)
def test_a_bucket_that_does_not_work_is_told(
    s3: dict[str, str],
    url: str,
    changes: dict[str, str],
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With its name and where it was looked for."""
    from pod.store import s3 as module

    monkeypatch.setitem(module.PATIENCE, "retries", {"max_attempts": 1})
    place = bucket_place({**s3, **changes}, url)
    with pytest.raises(StoreError, match=f"checkpoint store {url} at http://127.*{expected}"):
        place.check()


# -- the process ---------------------------------------------------------------------------------


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


MIRROR = ["-m", "pod.store.mirror"]


def spawn(
    run_dir: RunDir, url: str, given: dict[str, str], module: list[str] = MIRROR
) -> subprocess.Popen[bytes]:
    run_dir.path.mkdir(parents=True, exist_ok=True)
    words = ["--run-dir", str(run_dir.path), "--run", RUN, "--url", url]
    return subprocess.Popen(
        [sys.executable, *module, *words],
        env={**os.environ, **given},
        stdout=subprocess.DEVNULL,
    )


def test_a_mirror_that_is_killed_in_an_upload_ends_complete(
    hub: Emulator, run_dir: RunDir, tmp_path: Path, processes: list[subprocess.Popen[bytes]]
) -> None:
    """SIGKILL while a file is on its way; the next mirror goes on, and stops when told to."""
    make_checkpoint(run_dir, 10, size=400_000)
    hub.set([{"match": "PUT /storage", "slow": 100_000, "times": 2}])
    given = environment(hub, tmp_path / "hf")
    processes.append(spawn(run_dir, f"hf://{REPO}", given))
    until(lambda: hub.storage.uploads and list(hub.storage.home.glob("*.0.*")), 15)
    assert (run_dir.path / "mirror" / "checkpoint-10").is_dir()
    processes[0].kill()
    processes[0].wait()
    assert hub_steps(hub) == []
    hub.set([])
    processes.append(spawn(run_dir, f"hf://{REPO}", given))
    until(lambda: hub_steps(hub) == [10], 15)
    until(lambda: (read_json(run_dir.path / "store.json") or {}).get("stored") == [10])
    assert not (run_dir.path / "mirror").exists()
    second = spawn(run_dir, f"hf://{REPO}", given)
    processes.append(second)
    assert second.wait(10) == 0  # there is one already
    processes[1].send_signal(signal.SIGTERM)
    assert processes[1].wait(5) == 0


def test_told_to_end_it_does_not_wait_for_a_long_upload(
    hub: Emulator, run_dir: RunDir, tmp_path: Path, processes: list[subprocess.Popen[bytes]]
) -> None:
    """SIGTERM in an upload that would take minutes: gone soon, without half a checkpoint."""
    make_checkpoint(run_dir, 10, size=4_000_000)
    hub.set([{"match": "PUT /storage", "slow": 10_000, "times": 9}])
    given = environment(hub, tmp_path / "hf")
    code = "import pod.store.mirror as m; m.FINISH_S = 0.3; m.main()"
    process = spawn(run_dir, f"hf://{REPO}", given, ["-c", code])
    processes.append(process)
    until(lambda: list(hub.storage.home.glob("*.0.*")), 15)
    process.send_signal(signal.SIGTERM)
    assert process.wait(5) == 0
    assert hub_steps(hub) == []


def test_the_flows_start_one_mirror_and_restore(
    run_dir: RunDir, tmp_path: Path, processes: list[subprocess.Popen[bytes]]
) -> None:
    """What flows/on_pod.py calls: start it, wait for it before the pod ends, restore elsewhere."""
    url = f"file://{tmp_path}/store"
    settings = RunnerSettings(checkpoint_store="volume")
    train(run_dir, range(1, 11))
    given = {**os.environ, "AXR_STORE": url}
    assert restore_from_store(run_dir, RUN, settings, given) is None
    assert not wait_until_stored(run_dir, 5)
    assert start_mirror(run_dir, given)
    until(lambda: wait_until_stored(run_dir, 5), 5)
    assert not start_mirror(run_dir, given)
    assert stored_steps(tmp_path / "store") == [10]
    assert store_trouble(run_dir) is None
    new = RunDir(tmp_path / "other" / RUN)
    new.path.mkdir(parents=True)
    assert restore_from_store(new, RUN, settings, given, before=10) is None
    assert restore_from_store(new, RUN, settings, given, before=12) == 10
    assert [e["step"] for e in events.read(new.events)[0]][-1] == 10
    run_dir.finished.touch()
    until(lambda: start_mirror(run_dir, {}) is False and _is_free(run_dir), 5)
    with pytest.raises(StoreError, match="names no place"):
        restore_from_store(new, RUN, settings, {**os.environ, "AXR_STORE": "nowhere"})


def _is_free(run_dir: RunDir) -> bool:
    from runner.locks import is_free

    return is_free(run_dir.path / "mirror.lock")


def test_volume_means_that_nothing_is_mirrored(
    run_dir: RunDir, processes: list[subprocess.Popen[bytes]]
) -> None:
    """The volume itself outlives the pod."""
    process = spawn(run_dir, "volume", {})
    processes.append(process)
    assert process.wait(10) == 0
    assert not start_mirror(run_dir, {"AXR_STORE": "volume"})
