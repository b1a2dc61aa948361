"""Which place a text names, and the folder as a place."""

from __future__ import annotations

from pathlib import Path

import pytest

from pod.rundir import sha256_of
from pod.store.folder import FolderPlace
from pod.store.places import Changed, Source, StoreError, open_place


def source(tmp_path: Path, content: bytes = b"content") -> Source:
    path = tmp_path / "source"
    path.write_bytes(content)
    return Source(path, sha256_of(path))


@pytest.mark.parametrize(
    ("url", "environment", "expected"),
    [
        ("volume", {}, None),
        ("volume", {"AXR_STORE_VOLUME": "/mnt/other"}, "file:///mnt/other"),
        ("/mnt/store", {}, "file:///mnt/store"),
        ("file:///mnt/store", {}, "file:///mnt/store"),
        ("hf://me/ckpt", {"HF_TOKEN": "x"}, "hf://me/ckpt"),
        ("hf://me/ckpt/deep/er", {}, "hf://me/ckpt/deep/er"),
    ],
)
def test_a_text_names_a_place(url: str, environment: dict[str, str], expected: str | None) -> None:
    """`volume` alone is the run's own, which needs no mirror."""
    place = open_place(url, environment)
    assert (place and place.url) == expected


@pytest.mark.parametrize("url", ["", "hf://me", "s3://", "ftp://x/y", "relative/path"])
def test_other_texts_are_refused_with_what_is_possible(url: str) -> None:
    """One sentence says what was found and what may stand there."""
    with pytest.raises(StoreError, match="names no place: use hf://user/repository"):
        open_place(url, {})


def test_files_go_in_and_out_under_their_names(tmp_path: Path) -> None:
    """Listing is by folder and gives sizes."""
    place = FolderPlace(tmp_path / "store")
    place.check()
    place.put({"run/a/x.bin": source(tmp_path), "run/a.json": source(tmp_path)})
    place.put({"run2/b": source(tmp_path)})
    assert place.listing("run/") == {"run/a/x.bin": 7, "run/a.json": 7}
    assert place.listing("nothing/") == {}
    place.get("run/a/x.bin", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == b"content"
    with pytest.raises(KeyError):
        place.get("run/none", tmp_path / "back")
    place.delete(["run/a/x.bin", "run/a/x.bin", "run/a.json"])
    assert [path.name for path in (tmp_path / "store").iterdir()] == ["run2"]


def test_a_file_that_is_not_what_was_recorded_does_not_arrive(tmp_path: Path) -> None:
    """Its hash is taken from what is read for the copy."""
    place = FolderPlace(tmp_path / "store")
    with pytest.raises(Changed, match="run/x has changed since it was recorded"):
        place.put({"run/x": Source(source(tmp_path).path, "0" * 64)})
    assert place.listing("run/") == {}
    place.tidy("run/")
    assert list((tmp_path / "store").iterdir()) == []


def test_the_last_file_is_gone_while_the_others_are_replaced(tmp_path: Path) -> None:
    """So a manifest never stands for a mixture of two checkpoints."""
    place = FolderPlace(tmp_path / "store")
    place.put({"run/x": source(tmp_path), "run/x.json": source(tmp_path)})
    with pytest.raises(FileNotFoundError):
        place.put({"run/x": Source(tmp_path / "gone"), "run/x.json": source(tmp_path)})
    assert place.listing("run/") == {"run/x": 7}


def test_an_unusable_folder_is_told_with_what_to_do(tmp_path: Path) -> None:
    """What, where, and what to look at."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match=r"file:///.*/file/store: can't write.*mounted, writable"):
        FolderPlace(tmp_path / "file" / "store").check()
