"""Real checkpoints: whole ones pass, damaged, ruined and untrusted ones do not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from pod import events, ledger, pickles, verdict
from pod.finite import ruined_weights
from pod.integrity import structural_flaw
from pod.rundir import RunDir
from runner.home import axolotl_environment
from tests.checkpoints import Call, Name, torch_file
from tests.e2e.conftest import needs_axolotl
from tests.e2e.test_data_position import LORA
from tests.e2e.training import Trained, TrainServer, make_run

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What torch and FSDP wrote with two ranks."""
    needs_axolotl()
    folder = tmp_path_factory.mktemp("written")
    env = axolotl_environment()
    subprocess.run(
        [
            env / "bin" / "torchrun",
            "--standalone",
            "--nproc-per-node=2",
            Path(__file__).with_name("write_checkpoints.py"),
            folder,
        ],
        check=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
    )
    shutil.copy(folder / "torch" / "rng_state_0.pth", folder / "fsdp")
    (folder / "fsdp" / "trainer_state.json").write_text("{}")
    return folder


def test_what_torch_writes_is_let_through(written: Path) -> None:
    """The list of names holds all that schedules, optimizers and random numbers need."""
    files = sorted((written / "torch").iterdir())
    assert len(files) == 8
    assert {file.name: pickles.refusal(file) for file in files} == {f.name: None for f in files}


def test_a_number_that_is_not_finite_is_found_in_a_torch_file(
    written: Path, tmp_path: Path
) -> None:
    """Half a tensor's bytes are looked at only if the pickle says that they are floats."""
    shutil.copy(written / "torch" / "pytorch_model.bin", tmp_path)
    assert ruined_weights(tmp_path) is None
    shutil.copy(written / "torch" / "broken.bin", tmp_path / "pytorch_model.bin")
    assert (ruined_weights(tmp_path) or "").startswith("pytorch_model.bin holds numbers that are")


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 100)


@pytest.mark.parametrize(
    ("name", "damage", "flaw"),
    [
        ("pytorch_model_fsdp_0/__1_0.distcp", cut, "is cut off"),
        ("pytorch_model_fsdp_0/__1_0.distcp", Path.unlink, "is missing"),
        ("optimizer_0/__0_0.distcp", Path.unlink, "is missing"),
        ("optimizer_0/.metadata", cut, "cannot be read"),
        ("pytorch_model_fsdp_0/.metadata", Path.unlink, "is missing"),
    ],
)
def test_a_checkpoint_of_two_fsdp_ranks_is_whole_or_not(
    written: Path, tmp_path: Path, name: str, damage: Callable[[Path], object], flaw: str
) -> None:
    """A rank's file may be missing or cut off, in the weights or in the optimizer's state."""
    folder = tmp_path / "checkpoint-5"
    shutil.copytree(written / "fsdp", folder)
    assert ledger.verify(folder) is None
    damage(folder / name)
    assert (ledger.verify(folder) or "").startswith(f"{name} {flaw}")


# ---------------------------------------------------------------- axolotl's own


@pytest.fixture(scope="module")
def trained(
    train_server: TrainServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Future[Trained]]:
    """Short trainings, each with checkpoints of steps 2, 4 and 6."""
    folder = tmp_path_factory.mktemp("trained")
    short: dict[str, Any] = {"max_steps": 6, "save_steps": 2, "eval_steps": None}
    short |= {"val_set_size": 0, "save_total_limit": 9}
    changes: dict[str, dict[str, Any]] = {
        "full": {},
        "lora": LORA,
        "full disk": {"plugins": ["tests.faults.disk_full.DiskFull"], "fault_step": 4},
    }
    return {
        name: train_server.train(make_run(folder / name.replace(" ", "-"), **short, **change))
        for name, change in changes.items()
    }


@pytest.mark.parametrize("name", ["full", "lora"])
def test_checkpoints_of_axolotl_are_whole_safe_and_finite(
    trained: dict[str, Future[Trained]], name: str
) -> None:
    """With hashes and without, and each is recorded."""
    run_dir = trained[name].result().run_dir
    assert [c.step for c in ledger.checkpoints(run_dir)] == [2, 4, 6]
    for step in (2, 4, 6):
        assert ledger.verify(run_dir.out / f"checkpoint-{step}") is None


EVIL_FILES = ["optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin"]


@pytest.mark.parametrize("name", EVIL_FILES)
def test_a_pickle_with_a_command_in_it_is_never_run(
    trained: dict[str, Future[Trained]], train_server: TrainServer, tmp_path: Path, name: str
) -> None:
    """Our check refuses it; and were it not for us, the trainer would not run it either."""
    run_dir = copy_of(trained["full"].result(), tmp_path / "run")
    folder = run_dir.out / "checkpoint-4"
    caught = tmp_path / "caught"
    evil = Call(Name("posix", "system"), (f"touch {caught}",))
    (folder / name).write_bytes(torch_file({"state": evil}))
    (folder / ledger.LEDGER).unlink()  # whoever can write the file can write its hash
    refused = f"{name} would load posix.system, which no checkpoint needs"
    read = name != "training_args.bin"
    assert ledger.verify(folder) == (refused if read else None)
    resumed = train_server.train(run_dir, attempt=2, resume_from=4).result()
    assert (resumed.code != 0) == read
    assert not caught.exists()


def test_a_disk_that_fills_up_while_saving_costs_one_checkpoint(
    trained: dict[str, Future[Trained]], train_server: TrainServer
) -> None:
    """The partial folder is set aside, the reason names the disk, an older one leads on (H41)."""
    run = trained["full disk"].result()
    run_dir = run.run_dir
    assert structural_flaw(run_dir.out / "checkpoint-4") == "trainer_state.json is missing"
    judged = verdict.judge(
        events.read(run_dir.events)[0],
        attempt=1,
        alive=False,
        exit_code=run.code,
        log_tail=run.log(),
        out=run_dir.out,
    )
    assert judged is not None
    assert judged.outcome == "crash"
    assert judged.reason == "disk full at step 4 of 6: no space left for checkpoints"
    assert ledger.quarantine(run_dir, onset=None, attempt=1) == ["checkpoint-4.attempt-1"]
    picked = ledger.pick(run_dir)
    assert picked is not None
    assert (picked.step, picked.health) == (2, "healthy")
    again = train_server.train(run_dir, attempt=2, resume_from=2).result()
    assert again.code == 0, again.log()[-3000:]
    assert sorted(again.losses(2)) == [3, 4, 5, 6]


def test_a_run_moves_to_another_pod_after_rotation_took_its_healthy_checkpoints(
    train_server: TrainServer, tmp_path: Path
) -> None:
    """One checkpoint at a time, the best one's path gone: it goes on to the end (H36, H37)."""
    first_pod, second_pod = RunDir(tmp_path / "first"), RunDir(tmp_path / "second")
    task: dict[str, Any] = {"save_steps": 2, "eval_steps": 2, "save_total_limit": 1}
    task |= {"load_best_model_at_end": True, "metric_for_best_model": "loss"}
    spiked = train_server.train(make_run(first_pod.path, task="spike.yml", **task)).result()
    (alarm,) = spiked.events("alarm")
    onset = alarm["onset_step"]
    assert all(step_of(p) >= onset or step_of(p) <= 24 for p in first_pod.out.glob("checkpoint-*"))
    shutil.copytree(first_pod.path, second_pod.path, symlinks=True)
    shutil.rmtree(first_pod.path)
    config = second_pod.axolotl_file
    config.write_text(config.read_text().replace(str(first_pod.path), str(second_pod.path)))
    ledger.quarantine(second_pod, onset=onset, attempt=1)
    picked = ledger.pick(second_pod, before=onset)
    assert picked is not None
    assert picked.step < onset
    state = json.loads((picked.path / "trainer_state.json").read_text())
    best = state["best_model_checkpoint"]
    assert best is None or Path(best).is_dir()
    resumed = train_server.train(second_pod, attempt=2, resume_from=picked).result()
    assert resumed.code == 0, resumed.log()[-3000:]
    assert sorted(resumed.losses(2)) == list(range(picked.step + 1, 41))


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.split("-")[1])


def copy_of(run: Trained, folder: Path) -> RunDir:
    """The same run in another place."""
    shutil.copytree(run.run_dir.path, folder)
    text = (folder / "axolotl.yml").read_text()
    (folder / "axolotl.yml").write_text(text.replace(str(run.run_dir.path), str(folder)))
    return RunDir(folder)
