"""What the mirror brings up, and what it takes away again."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import pytest

from pod import events, ledger
from pod.rundir import RunDir, read_json
from pod.store import mirror as module
from pod.store.folder import FolderPlace
from pod.store.places import StoreError
from tests.stores import (
    RUN,
    WatchedPlace,
    away,
    make_checkpoint,
    mirror,
    rotate,
    settle,
    stored_steps,
    train,
)


def told(run_dir: RunDir) -> list[tuple[int, bool]]:
    return [(e["step"], e["ok"]) for e in events.read(run_dir.path / "store.jsonl")[0]]


def standing(run_dir: RunDir) -> dict[str, object]:
    return read_json(run_dir.path / "store.json") or {}


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path / "run")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_the_newest_comes_first_and_every_upload_is_told(run_dir: RunDir, root: Path) -> None:
    """A mirror that is behind brings up what would be lost most."""
    train(run_dir, range(1, 31))
    one = mirror(run_dir, FolderPlace(root))
    assert one.once()
    assert stored_steps(root) == [30]
    assert standing(run_dir)["waiting"] == [10, 20]
    settle(one)
    assert stored_steps(root) == [10, 20, 30]
    assert told(run_dir) == [(30, True), (20, True), (10, True)]
    assert standing(run_dir) | {"t": 0} == {
        "url": f"file://{root}", "stored": [10, 20, 30], "waiting": [], "trouble": None, "t": 0
    }  # fmt: skip
    assert not (run_dir.path / "mirror").exists()


def test_the_state_of_the_run_goes_up_with_a_checkpoint(run_dir: RunDir, root: Path) -> None:
    """Whole lines only: somebody may be writing."""
    train(run_dir, range(1, 11))
    with run_dir.events.open("a") as file:
        file.write('{"kind": "step", "cut o')
    settle(mirror(run_dir, FolderPlace(root)))
    copied = (root / RUN / "state" / "events.jsonl").read_text()
    assert run_dir.events.read_text().startswith(copied)
    assert copied.count("\n") == 11
    assert json.loads((root / RUN / "state" / "attempt.json").read_text()) == {"attempt": 1}


def test_the_store_is_pruned_to_the_healthy_few(run_dir: RunDir, root: Path) -> None:
    """Ten saves with rotation: the newest three stay, and an old one until one is proven."""
    one = mirror(run_dir, FolderPlace(root))
    for first in range(1, 101, 10):
        train(run_dir, range(first, first + 10))
        rotate(run_dir, limit=2)
        settle(one)
    assert stored_steps(root) == [10, 80, 90, 100]
    names = {name.split("/")[1] for name in FolderPlace(root).listing(f"{RUN}/")}
    assert names == {"state"} | {
        f"checkpoint-{step}{end}" for step in (10, 80, 90, 100) for end in ("", ".json")
    }


def test_what_is_quarantined_later_is_taken_away(run_dir: RunDir, root: Path) -> None:
    """Also by a mirror that was not there when it was brought up, and without an alarm's event."""
    train(run_dir, range(1, 41))
    settle(mirror(run_dir, FolderPlace(root)))
    ledger.quarantine(run_dir, onset=25, attempt=1)
    settle(mirror(run_dir, FolderPlace(root)))
    assert stored_steps(root) == [10, 20]
    make_checkpoint(run_dir, 30, attempt=2)
    settle(mirror(run_dir, FolderPlace(root)))
    assert stored_steps(root) == [10, 20, 30]


def test_an_alarm_is_enough_to_take_away(run_dir: RunDir, root: Path) -> None:
    """The pod may die before the quarantine; the alarm then goes up with the state."""
    train(run_dir, range(1, 41))
    one = mirror(run_dir, FolderPlace(root))
    settle(one)
    events.append(run_dir.events, "alarm", 1, 45, onset_step=35, alarm="jump", reason="up")
    settle(one)
    assert stored_steps(root) == [10, 20, 30]
    assert '"alarm"' in (root / RUN / "state" / "events.jsonl").read_text()


def test_a_step_that_was_saved_again_replaces_its_forerunner(run_dir: RunDir, root: Path) -> None:
    """After a way back the same step has other weights, and perhaps other files."""
    train(run_dir, range(1, 21))
    (run_dir.out / "checkpoint-20" / "scaler.pt").write_bytes(b"PK")
    ledger.record(run_dir.out / "checkpoint-20", step=20, attempt=1, health="healthy")
    one = mirror(run_dir, FolderPlace(root))
    settle(one)
    shutil.rmtree(run_dir.out / "checkpoint-20")
    train(run_dir, range(11, 21), attempt=2)
    settle(one)
    manifest = read_json(root / RUN / "checkpoint-20.json")
    assert manifest is not None
    assert manifest["attempt"] == 2
    there = {path.name for path in (root / RUN / "checkpoint-20").iterdir()}
    assert there == {"model.safetensors", "optimizer.pt", "trainer_state.json"}


def test_rotation_takes_nothing_away_under_its_hands(run_dir: RunDir, root: Path) -> None:
    """The folder is deleted while its first file is on its way."""
    train(run_dir, range(1, 11))
    gone = run_dir.out / "checkpoint-10"

    def rotation(name: str) -> None:
        if name.endswith("optimizer.pt"):
            shutil.rmtree(gone)

    settle(mirror(run_dir, WatchedPlace(root, rotation)))
    assert not gone.exists()
    assert stored_steps(root) == [10]


def test_what_the_ledger_keeps_is_brought_up_when_rotation_was_faster(
    run_dir: RunDir, root: Path
) -> None:
    """A file is gone already when the mirror comes; `kept/` has it."""
    train(run_dir, range(1, 11))
    ledger.keep(run_dir, proven=[0])
    (run_dir.out / "checkpoint-10" / "optimizer.pt").unlink()
    settle(mirror(run_dir, FolderPlace(root)))
    assert stored_steps(root) == [10]


def test_a_checkpoint_that_is_gone_is_skipped(run_dir: RunDir, root: Path) -> None:
    """It is told, the next one is brought up, and it is not tried for ever."""
    train(run_dir, range(1, 21))
    (run_dir.out / "checkpoint-20" / "optimizer.pt").unlink()
    settle(mirror(run_dir, FolderPlace(root)))
    assert stored_steps(root) == [10]
    assert told(run_dir) == [(20, False), (10, True)]


def test_a_checkpoint_that_has_changed_is_not_stored(run_dir: RunDir, root: Path) -> None:
    """What is read is held against the ledger: a bit has flipped on the disk."""
    train(run_dir, range(1, 21))
    weights = run_dir.out / "checkpoint-20" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\xff")
    settle(mirror(run_dir, FolderPlace(root)))
    assert stored_steps(root) == [10]
    assert told(run_dir) == [(20, False), (10, True)]


def test_what_a_dead_mirror_left_is_removed(run_dir: RunDir, root: Path) -> None:
    """Files without a manifest, of a step that is wanted no more."""
    train(run_dir, range(1, 11))
    with pytest.raises(StoreError):
        mirror(run_dir, WatchedPlace(root, lambda n: away(n) if "state" not in n else None)).once()
    stale = root / RUN / "checkpoint-5" / "optimizer.pt.part"
    stale.parent.mkdir()
    stale.write_bytes(b"half")
    (root / RUN / "checkpoint-5" / "model.safetensors").write_bytes(b"whole")
    settle(mirror(run_dir, FolderPlace(root)))
    assert stored_steps(root) == [10]
    assert not stale.parent.exists()


def test_a_place_that_is_away_is_tried_again_and_told(
    run_dir: RunDir, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mirror lives on, says what is wrong, and says when it is well again."""
    monkeypatch.setattr(module, "FIRST_WAIT_S", 0.001)
    train(run_dir, range(1, 11))
    failures = 3
    seen: list[object] = []

    def sometimes(name: str) -> None:
        nonlocal failures
        seen.append(standing(run_dir).get("trouble"))
        if failures:
            failures -= 1
            away(name)

    run_dir.finished.touch()  # so it ends when all is done
    mirror(run_dir, WatchedPlace(root, sometimes)).follow(threading.Event())
    assert stored_steps(root) == [10]
    assert told(run_dir) == [(10, False)] * 3 + [(10, True)]
    assert seen[1:3] == ["checkpoint store: away"] * 2
    assert standing(run_dir)["trouble"] is None


def test_it_stops_between_two_uploads(run_dir: RunDir, root: Path) -> None:
    """Told to stop, it finishes the one in hand."""
    train(run_dir, range(1, 31))
    stop = threading.Event()
    mirror(run_dir, WatchedPlace(root, lambda _: stop.set())).follow(stop)
    assert stored_steps(root) == [30]


def test_storage_that_cannot_be_freed_stops_nothing(
    run_dir: RunDir, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A token may lack that right alone; it is said in the log."""

    class Untidy(FolderPlace):
        def tidy(self, prefix: str) -> None:
            away(prefix)

    train(run_dir, range(1, 41))
    one = mirror(run_dir, Untidy(root), keep=1)
    settle(one)
    assert stored_steps(root) == [10, 40]
    assert "checkpoint store: away" in capsys.readouterr().out
