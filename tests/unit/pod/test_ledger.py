"""Which checkpoints are trusted, set aside and kept (H34 to H37)."""

from __future__ import annotations

import json
import math
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from pod import ledger
from pod.ledger import Recorder, keep, pick, quarantine, record, verify
from pod.rundir import RunDir, read_json
from tests.checkpoints import Call, Name, deepspeed_folder, safetensors, torch_file

Damage = Callable[[Path], object]


def make_checkpoint(
    run_dir: RunDir,
    step: int,
    *,
    weights: str = "model.safetensors",
    health: str | None = "healthy",
    attempt: int = 1,
) -> Path:
    """A checkpoint like the trainer's; `health` None leaves it without a ledger entry."""
    folder = run_dir.out / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    (folder / weights).write_bytes(safetensors())
    (folder / "optimizer.pt").write_bytes(torch_file())
    (folder / "rng_state.pth").write_bytes(torch_file())
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    if health is not None:
        record(folder, step=step, attempt=attempt, health=health)  # type: ignore[arg-type]
    return folder


def cut(name: str, size: int) -> Damage:
    def damage(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[:size])

    return damage


def flip_last_byte(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")


def shard(*names: str) -> Damage:
    def damage(folder: Path) -> None:
        weights = folder / "model.safetensors"
        index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        for name, tensor in zip(names, "ab", strict=False):
            (folder / name).write_bytes(safetensors(name=tensor))
        weights.unlink()

    return damage


def ruin_weights(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(safetensors(struct.pack("<4f", 1, 2, math.nan, 3)))


def poison_optimizer(folder: Path) -> None:
    evil = Call(Name("os", "system"), ("touch caught",))
    (folder / "optimizer.pt").write_bytes(torch_file(evil))


def lose_a_rank(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    deepspeed_folder(folder, step=5, ranks=4)
    (folder / "global_step5" / "bf16_zero_pp_rank_3_mp_rank_00_optim_states.pt").unlink()


def remove_all_files(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


BROKEN: list[tuple[str, Damage, str]] = [
    ("no state", lambda f: (f / "trainer_state.json").unlink(), "trainer_state.json is missing"),
    ("cut state", cut("trainer_state.json", 5), "trainer_state.json is cut off"),
    ("empty folder", remove_all_files, "the folder is empty"),
    ("cut weights", cut("model.safetensors", 70), "model.safetensors is cut off"),
    ("cut header", cut("model.safetensors", 4), "model.safetensors is cut off"),
    ("empty optimizer", cut("optimizer.pt", 0), "optimizer.pt is cut off"),
    ("cut optimizer", cut("optimizer.pt", 80), "optimizer.pt is cut off"),
    ("no weights", lambda f: (f / "model.safetensors").unlink(), "the weights are missing"),
    ("no second shard", shard("model-1.safetensors"), "model-2.safetensors is missing"),
    ("ruined", ruin_weights, "model.safetensors holds numbers that are not finite, in w"),
    ("no trust", poison_optimizer, "optimizer.pt would load os.system, which no checkpoint needs"),
    (
        "a rank less",
        lose_a_rank,
        "global_step5/zero_pp_rank_3_mp_rank_00_optim_states.pt is missing",
    ),
]


@pytest.mark.parametrize(
    ("damage", "reason"), [row[1:] for row in BROKEN], ids=[r[0] for r in BROKEN]
)
def test_an_unusable_checkpoint_is_passed_over_and_set_aside(
    tmp_path: Path, damage: Damage, reason: str
) -> None:
    """Resume from 100 when 150 was cut off or can't be trusted, whatever it is (H34)."""
    run_dir = RunDir(tmp_path)
    make_checkpoint(run_dir, 100)
    damage(make_checkpoint(run_dir, 150, health=None))
    assert verify(run_dir.out / "checkpoint-150") == reason
    picked = pick(run_dir)
    assert picked is not None
    assert picked.step == 100
    assert quarantine(run_dir, onset=None, attempt=1) == ["checkpoint-150.attempt-1"]
    assert [path.name for path in run_dir.out.iterdir()] == ["checkpoint-100"]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (flip_last_byte, "model.safetensors has changed since it was recorded"),
        (lambda f: (f / "rng_state.pth").unlink(), "rng_state.pth is missing"),
        (lambda f: (f / "optimizer.pt").write_bytes(torch_file([1, 2])), "optimizer.pt has"),
    ],
)
def test_a_recorded_checkpoint_must_be_what_was_recorded(
    tmp_path: Path, damage: Damage, reason: str
) -> None:
    """The ledger's hashes find what the structure does not show."""
    folder = make_checkpoint(RunDir(tmp_path), 10)
    assert verify(folder) is None
    damage(folder)
    found = verify(folder)
    assert found is not None
    assert found.startswith(reason)


def test_ruined_weights_are_found_though_their_hashes_are_right(tmp_path: Path) -> None:
    """With sparse logs a NaN is saved and recorded as healthy before any log entry tells it."""
    run_dir = RunDir(tmp_path)
    make_checkpoint(run_dir, 10)
    folder = make_checkpoint(run_dir, 20, health=None)
    ruin_weights(folder)
    record(folder, step=20, attempt=1, health="healthy")
    assert verify(folder, hashes=False) is None
    picked = pick(run_dir)
    assert picked is not None
    assert picked.step == 10


@pytest.mark.parametrize("weights", ["model.safetensors", "adapter_model.safetensors"])
def test_whole_models_and_adapters_are_usable(tmp_path: Path, weights: str) -> None:
    """A full model, a LoRA adapter and a complete set of shards pass."""
    assert verify(make_checkpoint(RunDir(tmp_path), 10, weights=weights)) is None


def test_a_complete_set_of_shards_is_usable(tmp_path: Path) -> None:
    """Every shard that the index names is there."""
    folder = make_checkpoint(RunDir(tmp_path), 10, health=None)
    shard("model-1.safetensors", "model-2.safetensors")(folder)
    assert verify(folder) is None


def test_a_spike_leads_back_before_its_onset_and_the_rest_is_set_aside(tmp_path: Path) -> None:
    """100, 150, 200 are there, the loss went wrong at 140: resume from 100 (H35)."""
    run_dir = RunDir(tmp_path)
    for step in (100, 150, 200):
        make_checkpoint(run_dir, step)
    moved = quarantine(run_dir, onset=140, attempt=1)
    assert moved == ["checkpoint-150.attempt-1", "checkpoint-200.attempt-1"]
    assert quarantine(run_dir, onset=140, attempt=1) == []
    picked = pick(run_dir, before=140)
    assert picked is not None
    assert (picked.step, picked.health, picked.attempt) == (100, "healthy", 1)
    assert (run_dir.quarantine / "checkpoint-200.attempt-1" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("saved", "before", "expected"),
    [
        ({10: "healthy", 20: None}, None, 20),  # killed between save and record, no alarm
        ({10: "healthy", 20: None}, 30, 10),  # an alarm: a recorded one goes first
        ({20: None}, 30, 20),  # better than starting over
        ({10: "healthy", 20: "suspect"}, None, 10),
        ({20: "suspect"}, None, 20),  # only noise as long as no alarm says otherwise
        ({20: "suspect"}, 30, None),
        ({10: "healthy", 20: "healthy"}, 21, 10),  # no loss of its weights was ever normal
        ({20: "healthy"}, 21, 20),  # … but nothing else is left
        ({10: "healthy", 20: "healthy"}, 22, 20),
        ({10: "healthy", 20: "healthy"}, 20, 10),
        ({10: "healthy"}, 10, None),
        ({}, None, None),
    ],
)
def test_the_newest_trusted_checkpoint_is_picked(
    tmp_path: Path, saved: dict[int, str | None], before: int | None, expected: int | None
) -> None:
    """After an alarm: healthy, then unrecorded, onset - 1 last, suspect never."""
    run_dir = RunDir(tmp_path)
    for step, health in saved.items():
        make_checkpoint(run_dir, step, health=health)
    picked = pick(run_dir, before=before)
    assert (picked.step if picked else None) == expected


def test_a_changed_checkpoint_is_set_aside_without_an_alarm(tmp_path: Path) -> None:
    """The newest one is compared with its hashes too."""
    run_dir = RunDir(tmp_path)
    make_checkpoint(run_dir, 10)
    flip_last_byte(make_checkpoint(run_dir, 20))
    assert quarantine(run_dir, onset=None, attempt=3) == ["checkpoint-20.attempt-3"]


def test_what_was_set_aside_twice_keeps_both(tmp_path: Path) -> None:
    """Nothing in the quarantine is ever written over."""
    run_dir = RunDir(tmp_path)
    names = []
    for _ in range(2):
        make_checkpoint(run_dir, 20)
        names += quarantine(run_dir, onset=5, attempt=1)
    assert names == ["checkpoint-20.attempt-1", "checkpoint-20.attempt-1.2"]


def rotate(run_dir: RunDir, limit: int) -> None:
    """Delete all but the newest `limit` checkpoints, as the trainer does."""
    steps = sorted(int(path.name.split("-")[1]) for path in run_dir.out.iterdir())
    for step in steps[:-limit]:
        shutil.rmtree(run_dir.out / f"checkpoint-{step}")


def test_a_healthy_checkpoint_outlives_rotation(tmp_path: Path) -> None:
    """Limit 4, saves every 10 steps, wrong from 100, certain at 150: there is a way back (H36)."""
    run_dir = RunDir(tmp_path)
    for step in range(10, 151, 10):
        make_checkpoint(run_dir, step)
        keep(run_dir, proven=[step - 12, step - 100])
        rotate(run_dir, limit=4)
        lone = [p for p in run_dir.kept.iterdir() if not (run_dir.out / p.name).exists()]
        assert len(lone) <= 3  # two, and the one that rotation took just now
    moved = quarantine(run_dir, onset=100, attempt=1)
    assert "checkpoint-120.attempt-1" in moved
    assert list(run_dir.out.iterdir()) == []
    picked = pick(run_dir, before=100)
    assert picked is not None
    assert picked.step == 60  # a hundred steps without an alarm, less one interval
    assert picked.path.parent == run_dir.kept
    assert keep(run_dir, proven=[picked.step]) == [picked.step]


def test_suspect_checkpoints_are_not_kept(tmp_path: Path) -> None:
    """Only healthy ones are worth the disk."""
    run_dir = RunDir(tmp_path)
    make_checkpoint(run_dir, 10)
    make_checkpoint(run_dir, 20, health="suspect")
    assert keep(run_dir, proven=[0]) == [10]


def test_a_checkpoint_that_was_written_again_is_kept_anew(tmp_path: Path) -> None:
    """After a way back the same step is saved again; the old link must not stand for it."""
    run_dir = RunDir(tmp_path)
    make_checkpoint(run_dir, 10)
    keep(run_dir, proven=[0])
    shutil.rmtree(run_dir.out / "checkpoint-10")
    make_checkpoint(run_dir, 10, attempt=2)
    keep(run_dir, proven=[0])
    entry = read_json(run_dir.kept / "checkpoint-10" / ledger.LEDGER)
    assert entry is not None
    assert entry["attempt"] == 2


@pytest.mark.parametrize(("there", "expected"), [(True, "out/checkpoint-10"), (False, None)])
def test_the_path_of_the_best_checkpoint_is_mended(
    tmp_path: Path, there: bool, expected: str | None
) -> None:
    """On another pod that path is gone; the trainer would fail on it after its last step (H37)."""
    run_dir = RunDir(tmp_path)
    if there:
        make_checkpoint(run_dir, 10)
    folder = make_checkpoint(run_dir, 20, health=None)
    best = "/elsewhere/out/checkpoint-10"
    history = [{"step": 3, "loss": 1.5, "grad_norm": float("nan")}]  # as the Trainer writes it
    state = {"global_step": 20, "best_model_checkpoint": best, "log_history": history}
    (folder / "trainer_state.json").write_text(json.dumps(state))
    record(folder, step=20, attempt=1, health="healthy")
    assert pick(run_dir) is not None
    mended = read_json(folder / "trainer_state.json")
    assert mended is not None
    assert mended["best_model_checkpoint"] == (str(tmp_path / expected) if expected else None)
    assert verify(folder) is None


def test_the_recorder_writes_entries_from_its_own_thread(tmp_path: Path) -> None:
    """After close, every checkpoint has its entry with the attempt and its rung, and is kept."""
    run_dir = RunDir(tmp_path)
    recorder = Recorder(run_dir, attempt=2, rung={"kind": "replay"})
    for step in (5, 10):
        make_checkpoint(run_dir, step, health=None)
        recorder.submit(step, "healthy", proven=[0])
    recorder.close()
    found = ledger.checkpoints(run_dir)
    assert [(c.step, c.health, c.attempt, c.rung) for c in found] == [
        (5, "healthy", 2, {"kind": "replay"}),
        (10, "healthy", 2, {"kind": "replay"}),
    ]
    assert sorted(path.name for path in run_dir.kept.iterdir()) == ["checkpoint-10", "checkpoint-5"]


def test_a_checkpoint_that_vanishes_while_it_is_recorded_does_no_harm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rotation may be faster; training goes on and the log says so."""
    recorder = Recorder(RunDir(tmp_path), attempt=1, rung=None)
    recorder.submit(5, "healthy", proven=[0])
    recorder.close()
    assert "checkpoint-5 was not recorded or kept" in capsys.readouterr().out
    assert ledger.checkpoints(RunDir(tmp_path)) == []
