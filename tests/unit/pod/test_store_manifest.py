"""What makes a set of stored files a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pod.ledger import LEDGER
from pod.rundir import RunDir, read_json, write_json
from pod.store.folder import FolderPlace
from pod.store.manifest import Manifest, of_checkpoint, parse, stored
from tests.stores import RUN, away, make_checkpoint, mirror, settle, train
from tests.stores import WatchedPlace as Watched

FILE = {"bytes": 1, "sha256": "a" * 64}


def entry(**changes: Any) -> dict[str, Any]:
    whole = {"step": 5, "attempt": 1, "health": "healthy", "t": 1.5, "files": {"a/b": FILE}}
    return {key: value for key, value in {**whole, **changes}.items() if value is not None}


def complete(root: Path) -> dict[int, Manifest]:
    place = FolderPlace(root)
    return stored(place, RUN, place.listing(f"{RUN}/"))


def test_a_manifest_is_the_ledgers_entry_and_comes_back_the_same(tmp_path: Path) -> None:
    """Rung, factors and batch travel along, so that the next attempt knows them."""
    checkpoint = make_checkpoint(RunDir(tmp_path), 10)
    written = read_json(checkpoint / LEDGER)
    assert written is not None
    write_json(checkpoint / LEDGER, {**written, "batch": {"world_size": 2}})
    manifest = of_checkpoint(checkpoint)
    assert manifest is not None
    assert parse(json.loads(manifest.text())) == manifest
    assert parse(manifest.entry()) == manifest
    assert manifest.batch == manifest.entry()["batch"] == {"world_size": 2}
    assert set(manifest.files) == {"model.safetensors", "optimizer.pt", "trainer_state.json"}
    assert manifest.size == sum(fact.bytes for fact in manifest.files.values())


@pytest.mark.parametrize(
    "changes",
    [
        {"step": None},
        {"step": 0},
        {"files": None},
        {"files": {}},
        {"files": [1]},
        {"health": "fine"},
        {"t": "yesterday"},
        {"format": 2},
        {"files": {"a": {"bytes": 1, "sha256": "short"}}},
        {"files": {"a": {"bytes": -1, "sha256": "a" * 64}}},
        {"files": {"../a": FILE}},
        {"files": {"/etc/passwd": FILE}},
        {"files": {"a//b": FILE}},
        {"files": {"a\\..\\b": FILE}},
        {"files": {"axr_ledger.json": FILE}},
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused(changes: dict[str, Any]) -> None:
    """A store may have been filled by anybody; no name in it leads out of the checkpoint."""
    parse(entry())
    with pytest.raises(ValueError, match=r"\S"):
        parse(entry(**changes))


def test_without_its_manifest_a_checkpoint_does_not_exist(tmp_path: Path) -> None:
    """The mirror dies between the files and the manifest: nothing is there, then all is."""
    run_dir, root = RunDir(tmp_path / "run"), tmp_path / "store"
    train(run_dir, range(1, 11))
    dying = Watched(root, lambda name: away(name) if name.endswith("-10.json") else None)
    with pytest.raises(RuntimeError, match="away"):
        mirror(run_dir, dying).once()
    assert (root / RUN / "checkpoint-10" / "optimizer.pt").is_file()
    assert complete(root) == {}
    settle(mirror(run_dir, FolderPlace(root)))
    assert list(complete(root)) == [10]


@pytest.mark.parametrize("damage", ["missing", "short", "garbled", "renamed"])
def test_a_checkpoint_that_is_not_whole_does_not_count(tmp_path: Path, damage: str) -> None:
    """Its files must be listed with their sizes, its manifest readable and under its own name."""
    run_dir, root = RunDir(tmp_path / "run"), tmp_path / "store"
    train(run_dir, range(1, 21))
    settle(mirror(run_dir, FolderPlace(root)))
    folder = root / RUN
    match damage:
        case "missing":
            (folder / "checkpoint-20" / "optimizer.pt").unlink()
        case "short":
            (folder / "checkpoint-20" / "optimizer.pt").write_bytes(b"PK")
        case "garbled":
            (folder / "checkpoint-20.json").write_text('{"step": 2')
        case "renamed":
            (folder / "checkpoint-20.json").rename(folder / "checkpoint-30.json")
    assert list(complete(root)) == [10]
