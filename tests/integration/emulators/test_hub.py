"""The hub's emulator, as its own client and a careless one see it."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import (
    BadRequestError,
    GatedRepoError,
    HfHubHTTPError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from tests.emulators.hub import Emulator, running
from tests.emulators.hub.testing import files, use_here
from tests.emulators.testing import plain_client

REPO = "me/model"
LFS = {"Accept": "application/vnd.git-lfs+json", "Authorization": "Bearer hf_write"}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    with running() as emulator:
        use_here(monkeypatch)
        yield emulator


@pytest.fixture
def api(hub: Emulator) -> HfApi:
    made = HfApi(endpoint=hub.url, token="hf_write")
    made.create_repo(REPO, private=True)
    return made


@pytest.fixture
def raw(hub: Emulator, api: HfApi) -> Iterator[httpx.Client]:
    with plain_client(base_url=hub.url, headers={"Authorization": "Bearer hf_write"}) as client:
        yield client


def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(bytes(range(256)) * 1000)
    (folder / "config.json").write_text('{"a": "\u00e4"}', encoding="utf-8")
    (folder / "sub" / "empty.txt").write_bytes(b"")
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# Model\n")
    return folder


def commit(raw: httpx.Client, *lines: tuple[str, dict[str, Any]], kind: str = "ndjson") -> Any:
    body = "".join(json.dumps({"key": key, "value": value}) + "\n" for key, value in lines)
    headers = {"Content-Type": f"application/x-{kind}"}
    return raw.post(f"/api/models/{REPO}/commit/main", content=body, headers=headers)


def test_a_model_goes_up_and_is_listed_as_it_is(hub: Emulator, api: HfApi, tmp_path: Path) -> None:
    """What tasks/upload.py does: upload_folder, then sizes from the tree; again it is no commit."""
    folder = model(tmp_path)
    for _ in range(2):
        api.upload_folder(repo_id=REPO, folder_path=folder, commit_message="Upload")
    there = {e.path: e.size for e in api.list_repo_tree(REPO, recursive=True) if hasattr(e, "size")}
    there.pop(".gitattributes")
    assert there == {
        str(p.relative_to(folder)): p.stat().st_size for p in folder.rglob("*") if p.is_file()
    }
    assert hub.state["repos"][REPO]["commits"] == ["initial commit", "Upload"]
    found = api.model_info(REPO, files_metadata=True)
    assert found.private
    assert {s.rfilename: s.lfs is not None for s in found.siblings or []}["model.safetensors"]
    assert [c.title for c in api.list_repo_commits(REPO)] == ["Upload", "initial commit"]
    assert [b.name for b in api.list_repo_refs(REPO).branches] == ["main"]


def test_what_comes_down_is_what_went_up(api: HfApi, tmp_path: Path) -> None:
    """Small ones directly, large ones from the storage; by branch and by commit."""
    folder = model(tmp_path)
    made = api.upload_folder(repo_id=REPO, folder_path=folder)
    for name in ("model.safetensors", "config.json", "sub/empty.txt"):
        for revision in ("main", made.oid):
            got = api.hf_hub_download(
                REPO, name, revision=revision, cache_dir=tmp_path / revision[:4]
            )
            assert Path(got).read_bytes() == (folder / name).read_bytes()
    with pytest.raises(RemoteEntryNotFoundError):
        api.hf_hub_download(REPO, "none", cache_dir=tmp_path / "cache")
    with pytest.raises(RevisionNotFoundError):
        api.hf_hub_download(REPO, "config.json", revision="0" * 40, cache_dir=tmp_path / "cache")


def test_listings_come_in_pages(hub: Emulator, api: HfApi) -> None:
    """Links lead through them; a folder that is not there is an error."""
    api.create_commit(
        REPO,
        [CommitOperationAdd(f"run/{n}/a.txt", b"x") for n in range(7)],
        commit_message="many",
    )
    hub.page = 3
    names = [e.path for e in api.list_repo_tree(REPO, "run", recursive=True)]
    assert names == sorted([f"run/{n}" for n in range(7)] + [f"run/{n}/a.txt" for n in range(7)])
    assert [e.path for e in api.list_repo_tree(REPO, "run")] == [f"run/{n}" for n in range(7)]
    with pytest.raises(RemoteEntryNotFoundError):
        list(api.list_repo_tree(REPO, "none"))


def test_deleted_files_stay_in_the_storage_until_deleted_for_good(
    hub: Emulator, api: HfApi, tmp_path: Path
) -> None:
    """As on the hub, where they count as used."""
    api.upload_folder(repo_id=REPO, folder_path=model(tmp_path), path_in_repo="deep")
    api.create_commit(REPO, [CommitOperationDelete("deep/")], commit_message="away")
    assert files(hub, REPO) == {}
    every = list(api.list_lfs_files(REPO))
    assert [file.filename for file in every] == ["deep/model.safetensors"]
    api.permanently_delete_lfs_files(REPO, every)
    assert hub.state["repos"][REPO]["storage"] == {}
    with pytest.raises(RemoteEntryNotFoundError, match="A file with this name doesn't exist"):
        api.create_commit(REPO, [CommitOperationDelete("none")], commit_message="away")


@pytest.mark.parametrize(
    ("token", "error", "status"),
    [
        ("hf_read", HfHubHTTPError, 403),
        ("hf_other", RepositoryNotFoundError, 404),
        ("hf_wrong", HfHubHTTPError, 401),
        (False, RepositoryNotFoundError, 401),
    ],
)
def test_tokens_open_what_is_theirs(
    hub: Emulator, api: HfApi, token: str | bool, error: type[HfHubHTTPError], status: int
) -> None:
    """A private repository of somebody else looks like none."""
    other = HfApi(endpoint=hub.url, token=token)
    with pytest.raises(error) as caught:
        other.upload_file(path_or_fileobj=b"x", path_in_repo="x", repo_id=REPO)
    assert caught.value.response.status_code == status


def test_repositories_are_made_where_one_may(hub: Emulator, api: HfApi) -> None:
    """In one's own namespace and one's organization's; twice only if that is all right."""
    api.create_repo("team/model")
    api.create_repo(REPO, exist_ok=True)
    for repo, status in ((REPO, 409), ("other/model", 403)):
        with pytest.raises(HfHubHTTPError) as caught:
            api.create_repo(repo)
        assert caught.value.response.status_code == status
    api.delete_repo("team/model")
    assert list(hub.state["repos"]) == [REPO]
    assert api.whoami()["auth"]["accessToken"]["role"] == "write"


HEADER = ("header", {"summary": "s"})
OID = hashlib.sha256(b"never uploaded").hexdigest()


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ([("file", {"path": "a", "content": "", "encoding": "base64"})], 400),
        ([HEADER], 400),
        ([("header", {"summary": " "}), ("deletedFile", {"path": ".gitattributes"})], 400),
        ([HEADER, ("file", {"path": "../a", "content": "", "encoding": "base64"})], 400),
        ([HEADER, ("file", {"path": "a", "content": "!", "encoding": "base64"})], 400),
        ([HEADER, ("file", {"path": "a", "content": ""})], 400),
        ([HEADER, ("lfsFile", {"path": "a", "algo": "sha256", "oid": OID, "size": 1})], 400),
        ([HEADER, ("moved", {"path": "a"})], 400),
        ([HEADER, ("deletedFolder", {"path": "none"})], 404),
        ([("header", {"summary": "s", "parentCommit": "0" * 40}), ("deletedFile", {})], 412),
    ],
)
def test_a_careless_commit_is_refused_as_a_whole(
    hub: Emulator, raw: httpx.Client, lines: list[tuple[str, dict[str, Any]]], status: int
) -> None:
    """No half of it is there afterwards."""
    good = ("file", {"path": "good", "content": "eA==", "encoding": "base64"})
    answer = commit(raw, *lines[:1], good, *lines[1:]) if len(lines) > 1 else commit(raw, *lines)
    assert answer.status_code == status, answer.text
    assert answer.headers["X-Error-Message"]
    assert files(hub, REPO) == {}


def test_the_storage_is_as_strict_as_s3(hub: Emulator, raw: httpx.Client) -> None:
    """Signed addresses without a second key, announced sizes, and the content that was named."""
    oid = hashlib.sha256(b"content").hexdigest()
    asked = {
        "operation": "upload",
        "hash_algo": "sha256",
        "objects": [{"oid": oid, "size": 7}],
    }
    batch = f"/{REPO}.git/info/lfs/objects/batch"
    assert raw.post(batch, json=asked).status_code == 406
    actions = raw.post(batch, json=asked, headers=LFS).json()["objects"][0]["actions"]
    address = actions["upload"]["href"]
    with plain_client() as bare:
        assert bare.put(address.partition("?")[0], content=b"content").status_code == 403
        assert bare.put(address, content=b"content", headers=LFS).status_code == 400
        assert bare.put(address, content=b"shorter"[:5]).status_code == 400
        assert bare.put(address, content=b"CONTENT").status_code == 400
        assert bare.put(address, content=iter([b"content"])).status_code == 411
        verify = {"oid": oid, "size": 7}
        href = actions["verify"]["href"]
        assert raw.post(href, json=verify).status_code == 404
        assert bare.put(address, content=b"content").status_code == 200
    line = ("lfsFile", {"path": "a.bin", "algo": "sha256", "oid": oid, "size": 7})
    assert commit(raw, HEADER, line).status_code == 400  # nobody has verified it
    assert raw.post(href, json=verify).status_code == 200
    assert commit(raw, HEADER, line, kind="json").status_code == 400
    assert commit(raw, HEADER, line).status_code == 200
    assert "actions" not in raw.post(batch, json=asked, headers=LFS).json()["objects"][0]


def test_ranges_and_etags(hub: Emulator, api: HfApi, raw: httpx.Client) -> None:
    """A broken download goes on; the hash of a large file is in the answer to HEAD."""
    api.upload_file(path_or_fileobj=b"0123456789", path_in_repo="a.bin", repo_id=REPO)
    head = raw.head(f"/{REPO}/resolve/main/a.bin")
    assert head.status_code == 302
    assert head.headers["X-Linked-Etag"] == f'"{hashlib.sha256(b"0123456789").hexdigest()}"'
    assert head.headers["X-Linked-Size"] == "10"
    with plain_client() as bare:
        address = head.headers["Location"]
        part = bare.get(address, headers={"Range": "bytes=7-"})
        assert (part.status_code, part.content) == (206, b"789")
        assert part.headers["Content-Range"] == "bytes 7-9/10"
        assert bare.get(address, headers={"Range": "bytes=10-"}).status_code == 416


def test_faults_act_as_often_as_they_are_told(raw: httpx.Client, hub: Emulator) -> None:
    """By HTTP, as another process sets them; unknown words are refused."""
    fault = {"match": "whoami", "status": 429, "retry_after": 3, "ratelimit": True}
    assert raw.post("/_faults", json={"faults": [fault]}).status_code == 200
    refused = raw.get("/api/whoami-v2")
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "3")
    assert refused.headers["RateLimit"] == '"api";r=0;t=3'
    assert raw.get("/api/whoami-v2").status_code == 200
    assert raw.post("/_faults", json={"faults": [{"nonsense": 1}]}).status_code == 400
    hub.set([{"match": "whoami", "lost": True}])
    with pytest.raises(httpx.RemoteProtocolError):
        raw.get("/api/whoami-v2")
    assert raw.get("/_state").json()["repos"][REPO]["private"]


def test_xet_is_not_there_and_says_what_to_do(raw: httpx.Client) -> None:
    """A client that was started without the switch gets a sentence, not a riddle."""
    answer = raw.get(f"/api/models/{REPO}/xet-write-token/main")
    assert answer.status_code == 404
    assert "HF_HUB_DISABLE_XET=1" in answer.json()["error"]


def test_ignored_files_and_wrong_cards(api: HfApi, hub: Emulator) -> None:
    """.gitignore counts on the hub, and a card's metadata must be YAML."""
    api.upload_file(path_or_fileobj=b"*.tmp\n", path_in_repo=".gitignore", repo_id=REPO)
    api.create_commit(
        REPO,
        [CommitOperationAdd("a.tmp", b"x"), CommitOperationAdd("b.txt", b"x")],
        commit_message="two",
    )
    assert sorted(files(hub, REPO)) == [".gitignore", "b.txt"]
    with pytest.raises((BadRequestError, ValueError)):
        api.upload_file(path_or_fileobj=b"---\na: [\n---\n", path_in_repo="README.md", repo_id=REPO)


def test_data_sets_stand_beside_models_of_the_same_name(api: HfApi, tmp_path: Path) -> None:
    """Made, filled and read by the hub's client as another type."""
    api.create_repo(REPO, repo_type="dataset")
    for kind, content in (("model", b"m"), ("dataset", b"d")):
        api.upload_file(path_or_fileobj=content, path_in_repo="a.bin", repo_id=REPO, repo_type=kind)
    for kind, content in (("model", b"m"), ("dataset", b"d")):
        got = api.hf_hub_download(REPO, "a.bin", repo_type=kind, cache_dir=tmp_path)
        assert Path(got).read_bytes() == content
    assert api.dataset_info(REPO).sha != api.model_info(REPO).sha


def test_a_gate_lets_those_in_who_were_granted(hub: Emulator, api: HfApi, tmp_path: Path) -> None:
    """Everybody sees the list of files."""
    hub.plant("other/gated", {"config.json": "{}"})
    repo = hub.repository("other/gated")
    repo.gated = "manual"
    for token, status in (("hf_write", 403), (False, 401)):
        with pytest.raises(GatedRepoError) as caught:
            api.hf_hub_download("other/gated", "config.json", cache_dir=tmp_path, token=token)
        assert caught.value.response.status_code == status
    assert [e.path for e in api.list_repo_tree("other/gated")] == [".gitattributes", "config.json"]
    repo.granted = ("me",)
    got = api.hf_hub_download("other/gated", "config.json", cache_dir=tmp_path)
    assert Path(got).read_text() == "{}"


def test_planted_files_are_what_their_hashes_say(hub: Emulator, tmp_path: Path) -> None:
    """Of any size, without as much of the disk, and each with a content of its own."""
    hub.plant("me/big", {"a.safetensors": 5_000_001, "b.safetensors": 5_000_001})
    api = HfApi(endpoint=hub.url, token=False)
    hashes = set()
    for entry in files(hub, "me/big"):
        got = Path(api.hf_hub_download("me/big", entry, cache_dir=tmp_path))
        assert got.stat().st_size == 5_000_001
        hashes.add(hashlib.sha256(got.read_bytes()).hexdigest())
    assert hashes == {f["oid"] for f in files(hub, "me/big").values()}
    assert len(hashes) == 2
    assert hub.storage.blob(hashes.pop()).stat().st_blocks * 512 < 500_000


def test_answers_are_spoilt_as_faults_say(hub: Emulator, raw: httpx.Client) -> None:
    """A byte that is wrong, and an end that is missing without a word."""
    hub.plant(REPO, {"a.safetensors": 300_000})
    address = raw.head(f"/{REPO}/resolve/main/a.safetensors").headers["Location"]
    with plain_client() as bare:
        right = bare.get(address).content
        hub.set([{"match": "/storage", "corrupt": 200_000}])
        wrong = bare.get(address).content
        assert [n for n in range(300_000) if right[n] != wrong[n]] == [200_000]
        hub.set([{"match": "/storage", "short": 10}])
        assert bare.get(address).content == right[:-10]
        assert bare.get(address).content == right


def test_each_connection_gets_its_rate(hub: Emulator, raw: httpx.Client) -> None:
    """300 kB at 1 MB/s take 0.3 s, however they are asked for; several connections add up."""
    hub.plant(REPO, {"a.safetensors": 300_000})
    address = raw.head(f"/{REPO}/resolve/main/a.safetensors").headers["Location"]
    raw.post("/_rate", json={"bytes_per_second": 1_000_000})
    ranges = [f"bytes={n * 100_000}-{n * 100_000 + 99_999}" for n in range(3)]
    with plain_client() as bare:
        began = time.monotonic()
        parts = [bare.get(address, headers={"Range": each}).content for each in ranges]
        assert time.monotonic() - began > 0.2
    raw.post("/_rate", json={"bytes_per_second": None})
    assert b"".join(parts) == hub.storage.blob(address.split("/")[-1].split("?")[0]).read_bytes()
