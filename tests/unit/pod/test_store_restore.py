"""The way back from the store onto another pod's volume."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pod import events, ledger
from pod.rundir import RunDir, read_json
from pod.store import restore as module
from pod.store.folder import FolderPlace
from pod.store.places import StoreError
from pod.store.restore import restore
from tests.stores import RUN, make_checkpoint, mirror, settle, train, trained_steps

Damage = Callable[[Path], object]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store that holds 10, 20 and 30 of a run that came to step 33."""
    run_dir = RunDir(tmp_path / "lost")
    train(run_dir, range(1, 34))
    settle(mirror(run_dir, FolderPlace(tmp_path / "store")))
    return tmp_path / "store"


@pytest.fixture
def pod(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path / "new")


def test_a_new_pod_goes_on_from_the_newest_checkpoint(root: Path, pod: RunDir) -> None:
    """The ledger takes it like its own, with attempt, rung and factors; nothing is left beside."""
    assert restore(pod, FolderPlace(root), RUN) == 30
    picked = ledger.pick(pod)
    assert picked is not None
    assert (picked.step, picked.health, picked.attempt) == (30, "healthy", 1)
    assert ledger.verify(picked.path) is None
    assert trained_steps(pod) == [(1, step) for step in range(1, 31)]
    assert read_json(pod.attempt_file) == {"attempt": 1}
    assert sorted(path.name for path in pod.path.iterdir()) == [
        "attempt.json", "events.jsonl", "out"
    ]  # fmt: skip


def test_a_second_time_nothing_is_done(root: Path, pod: RunDir) -> None:
    """Not even when the run has gone on since."""
    restore(pod, FolderPlace(root), RUN)
    train(pod, range(31, 33), attempt=2)
    before = pod.events.read_bytes()
    assert restore(pod, FolderPlace(root), RUN) is None
    assert pod.events.read_bytes() == before


def test_an_empty_store_has_nothing(tmp_path: Path, pod: RunDir) -> None:
    """The first pod of a run finds none, and starts at the beginning."""
    assert restore(pod, FolderPlace(tmp_path / "store"), RUN) is None


def flip(name: str) -> Damage:
    def damage(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))

    return damage


@pytest.mark.parametrize(
    "damage",
    [
        flip("model.safetensors"),
        flip("optimizer.pt"),
        lambda folder: (folder / "optimizer.pt").write_bytes(b"PK"),
        lambda folder: (folder / "trainer_state.json").unlink(),
        lambda folder: folder.with_suffix(".json").unlink(),
        lambda folder: folder.with_suffix(".json").write_text("{}"),
    ],
)
def test_a_damaged_one_is_passed_over_for_the_next_older(
    root: Path, pod: RunDir, damage: Damage
) -> None:
    """Bits flipped, cut off, missing, without a manifest: 20 it is."""
    damage(root / RUN / "checkpoint-30")
    assert restore(pod, FolderPlace(root), RUN) == 20
    assert [path.name for path in pod.out.iterdir()] == ["checkpoint-20"]
    assert trained_steps(pod) == [(1, step) for step in range(1, 21)]


@pytest.mark.parametrize(
    ("before", "expected"), [(31, 20), (32, 30), (25, 20), (11, 10), (10, None)]
)
def test_after_an_alarm_only_what_came_before_its_onset_counts(
    root: Path, pod: RunDir, before: int, expected: int | None
) -> None:
    """And the step right before the onset only when there is nothing else."""
    assert restore(pod, FolderPlace(root), RUN, before=before) == expected


def test_a_stored_alarm_is_obeyed(tmp_path: Path, root: Path, pod: RunDir) -> None:
    """The lost pod could tell of its alarm, but not take the bad checkpoints away any more."""
    line = {"kind": "alarm", "t": 1.0, "attempt": 1, "step": 33, "onset_step": 25}
    with (root / RUN / "state" / "events.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    assert restore(pod, FolderPlace(root), RUN) == 20


def test_what_is_newer_on_the_volume_stays(root: Path, pod: RunDir) -> None:
    """Recorded or not: the trainer was killed before it was hashed."""
    make_checkpoint(pod, 40, health=None)
    assert restore(pod, FolderPlace(root), RUN) is None
    assert [path.name for path in pod.out.iterdir()] == ["checkpoint-40"]


def test_what_is_older_on_the_volume_stays_beside(root: Path, pod: RunDir) -> None:
    """A volume that was left behind has an older one."""
    make_checkpoint(pod, 10)
    assert restore(pod, FolderPlace(root), RUN) == 30
    assert sorted(path.name for path in pod.out.iterdir()) == ["checkpoint-10", "checkpoint-30"]


def test_a_suspect_one_on_the_volume_is_no_reason_to_stay(root: Path, pod: RunDir) -> None:
    """A healthy one is picked before it in any case."""
    make_checkpoint(pod, 40, health="suspect")
    assert restore(pod, FolderPlace(root), RUN) == 30


@pytest.mark.parametrize(
    "damage", [flip("model.safetensors"), lambda f: (f / "optimizer.pt").write_bytes(b"PK")]
)
def test_a_damaged_one_on_the_volume_makes_way(root: Path, pod: RunDir, damage: Damage) -> None:
    """It is moved aside, not deleted."""
    damage(make_checkpoint(pod, 30))
    assert restore(pod, FolderPlace(root), RUN) == 30
    assert ledger.verify(pod.out / "checkpoint-30") is None
    assert [path.name for path in pod.quarantine.iterdir()] == ["checkpoint-30.damaged"]


def test_a_pod_that_died_while_it_fetched_goes_on(
    root: Path, pod: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has come already is not fetched again; nothing of it was in the way of the trainer."""
    fetched: list[str] = []

    class Dying(FolderPlace):
        def get(self, name: str, target: Path) -> None:
            if name.endswith("trainer_state.json") and name not in fetched:
                fetched.append(name)
                raise StoreError("the network is gone")
            fetched.append(name)
            super().get(name, target)

    place = Dying(root)
    with pytest.raises(StoreError):
        restore(pod, place, RUN)
    assert not pod.out.exists()
    half = pod.path / "restore" / "checkpoint-30.attempt-1" / "model.safetensors"
    half.write_bytes(half.read_bytes()[:20])
    assert restore(pod, place, RUN) == 30
    assert fetched.count(f"{RUN}/checkpoint-30/optimizer.pt") == 1
    assert fetched.count(f"{RUN}/checkpoint-30/model.safetensors") == 2


def test_a_full_disk_is_told_before_anything_is_fetched(
    root: Path, pod: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How much is needed, how much there is, and the key that helps."""
    monkeypatch.setattr(module, "SPARE_BYTES", 1 << 60)
    with pytest.raises(StoreError, match=r"checkpoint-30 .* GB free; raise volume_in_gb"):
        restore(pod, FolderPlace(root), RUN)


def test_events_of_both_volumes_are_known_once(tmp_path: Path, root: Path, pod: RunDir) -> None:
    """The lost pod went on to 33 in attempt 1; another went on from 30 in attempt 2, to 44; back on
    the first one's volume every attempt's own steps are known, and none twice.
    """
    assert restore(pod, FolderPlace(root), RUN) == 30
    train(pod, range(31, 45), attempt=2)
    settle(mirror(pod, FolderPlace(root)))
    first = RunDir(tmp_path / "lost")
    assert restore(first, FolderPlace(root), RUN) == 40
    told = trained_steps(first)
    assert told == [(1, step) for step in range(1, 34)] + [(2, step) for step in range(31, 41)]
    assert restore(first, FolderPlace(root), RUN) is None
    kept = events.kept_steps(events.read(first.events)[0], before_attempt=3, up_to=40)
    assert [event["step"] for event in kept] == list(range(1, 41))


def test_an_attempt_that_goes_on_under_its_number_tells_each_step_once(
    root: Path, pod: RunDir
) -> None:
    """What was trained after the checkpoint and got lost is told by who trains it again."""
    restore(pod, FolderPlace(root), RUN)
    train(pod, range(31, 36), attempt=1)
    assert trained_steps(pod) == [(1, step) for step in range(1, 36)]


def test_events_without_the_save_are_cut_by_their_steps(root: Path, pod: RunDir) -> None:
    """An event may be missing; the steps tell where the checkpoint is."""
    path = root / RUN / "state" / "events.jsonl"
    lines = [line for line in path.read_text().splitlines() if '"save"' not in line]
    path.write_text("\n".join(lines) + "\n")
    assert restore(pod, FolderPlace(root), RUN) == 30
    assert trained_steps(pod) == [(1, step) for step in range(1, 31)]


def test_a_checkpoint_that_nobody_should_load_is_not_picked(root: Path, pod: RunDir) -> None:
    """The store's hashes say that it is what was stored, the ledger still looks into it (H34)."""
    from tests.checkpoints import Call, Name, torch_file

    folder = make_checkpoint(RunDir(root.parent / "evil"), 50, health=None)
    (folder / "optimizer.pt").write_bytes(torch_file(Call(Name("os", "system"), ("true",))))
    ledger.record(folder, step=50, attempt=1, health="healthy")
    entry = read_json(folder / ledger.LEDGER)
    (folder / ledger.LEDGER).unlink()
    shutil.copytree(folder, root / RUN / "checkpoint-50")
    (root / RUN / "checkpoint-50.json").write_text(json.dumps(entry))
    assert restore(pod, FolderPlace(root), RUN) == 50
    assert ledger.pick(pod) is None


def test_the_next_attempt_keeps_all_that_earlier_ones_told(
    tmp_path: Path, root: Path, pod: RunDir
) -> None:
    """Attempt 2 found on another pod that 30 was too late: it goes back to 20 from the store, and
    what is known of both attempts stays, the alarm above all.
    """
    restore(pod, FolderPlace(root), RUN, attempt=2)
    train(pod, range(31, 34), attempt=2)
    events.append(pod.events, "alarm", 2, 33, onset_step=29)
    ledger.quarantine(pod, onset=29, attempt=2)
    assert ledger.pick(pod, before=29) is None
    assert restore(pod, FolderPlace(root), RUN, before=29, attempt=3) == 20
    seen, _ = events.read(pod.events)
    assert [e["step"] for e in seen if e["kind"] == "alarm"] == [33]
    assert trained_steps(pod) == [(1, step) for step in range(1, 34)] + [
        (2, step) for step in (31, 32, 33)
    ]
    kept = events.kept_steps(seen, before_attempt=3, up_to=20)
    assert [event["step"] for event in kept] == list(range(1, 21))


def test_a_run_without_stored_events_keeps_its_own(root: Path, pod: RunDir) -> None:
    """A store without the state is no reason to forget what the volume tells."""
    (root / RUN / "state" / "events.jsonl").unlink()
    train(pod, range(1, 6))
    assert restore(pod, FolderPlace(root), RUN) == 30
    assert trained_steps(pod) == [(1, step) for step in range(1, 6)]
