"""The rescue as it runs on a pod: a process of its own, over real HTTP to the hub."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pod import events, ledger
from pod.rundir import RunDir, read_json
from pod.saving import NotSaved, save_only_copy
from pod.store.folder import FolderPlace
from pod.store.mirror import LOCK
from pod.store.places import open_place
from pod.store.restore import restore
from runner.locks import is_free
from tasks.storing import start_mirror
from tests.emulators.hub import Emulator, running
from tests.emulators.hub.testing import environment, files, use_here
from tests.emulators.testing import until
from tests.stores import (
    RUN,
    make_checkpoint,
    mirror,
    settle,
    stored_steps,
    train,
    trained_to_the_end,
)

REPO = f"me/axr-rescue-{RUN}"
TASK = (
    "base_model: m\ndatasets: [{{path: d, type: alpaca}}]\n{more}\nrunner: {{cloud: local{ours}}}\n"
)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    with running() as emulator:
        use_here(monkeypatch)
        yield emulator


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    (tmp_path / "vol" / RUN).mkdir(parents=True)
    return RunDir(tmp_path / "vol" / RUN)


def task(run_dir: RunDir, more: str = "", **ours: str) -> None:
    """The task file on the pod."""
    block = "".join(f", {key}: {value}" for key, value in ours.items())
    run_dir.task_file.write_text(TASK.format(more=more, ours=block))


def save(run_dir: RunDir, hub: Emulator, home: Path, token: str = "hf_write", **more: str) -> str:
    """What a guard does."""
    known = {**os.environ, **environment(hub, home, token), "AXR_PYTHON": sys.executable, **more}
    return save_only_copy(run_dir, RUN, known, within=120, store_only=bool(more.get("STORE_ONLY")))


def stored(hub: Emulator, repo: str = REPO) -> set[str]:
    """The names of the run in a repository."""
    return {name.removeprefix(f"{RUN}/") for name in files(hub, repo)}


def test_a_checkpoint_is_rescued_to_a_repository_from_which_the_run_goes_on(
    hub: Emulator, run_dir: RunDir, tmp_path: Path
) -> None:
    """Private, and a store in form; H57: a second rescue finds it there and sends nothing."""
    task(run_dir)
    train(run_dir, range(1, 36))
    assert save(run_dir, hub, tmp_path) == f"checkpoint-30 in hf://{REPO}/{RUN}"
    assert hub.state["repos"][REPO]["private"]
    commits = hub.state["repos"][REPO]["commits"]
    said = save(run_dir, hub, tmp_path, HF_HUB_OFFLINE="1")
    assert said == f"already checkpoint-30 in hf://{REPO}/{RUN}"
    assert hub.state["repos"][REPO]["commits"] == commits
    new = RunDir(tmp_path / "new")
    place = open_place(f"hf://{REPO}", {"HF_ENDPOINT": hub.url, "HF_TOKEN": "hf_write"})
    assert place is not None
    assert restore(new, place, RUN) == 30
    assert ledger.verify(new.out / "checkpoint-30") is None


@pytest.mark.parametrize("gathered", [False, True], ids=["in out/", "in model/"])
def test_a_trained_model_is_rescued_rather_than_its_checkpoints(
    hub: Emulator, run_dir: RunDir, tmp_path: Path, gathered: bool
) -> None:
    """Whether or not publishing had begun; without the trainer's own files."""
    task(run_dir)
    trained_to_the_end(run_dir, gathered=gathered)
    assert save(run_dir, hub, tmp_path) == f"the model in hf://{REPO}/{RUN}/model"
    assert stored(hub) == {"model/config.json", "model/model.safetensors", "model.json"}
    assert save(run_dir, hub, tmp_path).startswith("already the model")


def test_a_store_gets_the_model_and_the_last_checkpoint(
    hub: Emulator, run_dir: RunDir, tmp_path: Path
) -> None:
    """And nothing goes to a rescue repository; the next mirror leaves the model alone."""
    root = tmp_path / "store"
    task(run_dir, checkpoint_store="hf://me/kept")
    trained_to_the_end(run_dir)
    said = save(run_dir, hub, tmp_path, AXR_STORE=str(root))
    assert "the model in" in said
    assert f"checkpoint-20 in file://{root}/{RUN}" in said
    assert hub.state["repos"] == {}
    assert stored_steps(root) == [20]
    facts = read_json(root / RUN / "model.json") or {}
    assert facts["files"].keys() == {"config.json", "model.safetensors"}
    make_checkpoint(run_dir, 30)
    settle(mirror(run_dir, FolderPlace(root)))
    assert stored_steps(root) == [10, 20, 30]
    assert (root / RUN / "model" / "model.safetensors").is_file()
    assert read_json(root / RUN / "model.json") == facts


def test_a_store_that_fails_gives_way_to_the_hub(
    hub: Emulator, run_dir: RunDir, tmp_path: Path
) -> None:
    """But not where only the store was asked for."""
    task(run_dir)
    train(run_dir, range(1, 11))
    (tmp_path / "file").touch()
    broken = str(tmp_path / "file" / "store")
    with pytest.raises(NotSaved, match="is the volume mounted"):
        save(run_dir, hub, tmp_path, AXR_STORE=broken, STORE_ONLY="yes")
    assert hub.state["repos"] == {}
    assert save(run_dir, hub, tmp_path, AXR_STORE=broken) == f"checkpoint-10 in hf://{REPO}/{RUN}"


@pytest.mark.parametrize(
    ("token", "fault", "reason"),
    [
        ("hf_read", None, "may only read"),
        ("", None, "HF_TOKEN is not set"),
        ("hf_write", {"match": "/commit/", "status": 403}, "needs write access"),
    ],
)
def test_what_can_go_nowhere_has_one_clear_reason(
    hub: Emulator,
    run_dir: RunDir,
    tmp_path: Path,
    token: str,
    fault: dict[str, Any] | None,
    reason: str,
) -> None:
    """H21: and is not taken for saved."""
    task(run_dir)
    train(run_dir, range(1, 11))
    if fault:
        hub.set([{**fault, "times": 99}])
    with pytest.raises(NotSaved, match=reason):
        save(run_dir, hub, tmp_path, token)


@pytest.mark.parametrize(
    ("more", "ours", "published", "why"),
    [
        ("hub_model_id: me/model", {}, True, "published"),
        ("", {"network_volume": "vol1", "volume_mount_path": "/v"}, False, "outlives"),
    ],
)
def test_what_is_elsewhere_already_is_not_rescued(
    hub: Emulator,
    run_dir: RunDir,
    tmp_path: Path,
    more: str,
    ours: dict[str, str],
    published: bool,
    why: str,
) -> None:
    """A published model, or one on a volume that stays."""
    task(run_dir, more, **ours)
    train(run_dir, range(1, 11))
    if published:
        run_dir.finished.touch()
    said = save(run_dir, hub, tmp_path)
    assert said.startswith("nothing")
    assert why in said
    assert hub.state["repos"] == {}


def test_what_an_alarm_has_condemned_is_never_rescued(
    hub: Emulator, run_dir: RunDir, tmp_path: Path
) -> None:
    """The one before its onset is; a suspect one alone is worth nothing."""
    task(run_dir)
    train(run_dir, range(1, 31))
    events.append(run_dir.events, "alarm", 1, 33, alarm="spike", onset_step=25, reason="up")
    assert "checkpoint-20" in save(run_dir, hub, tmp_path)
    for path in run_dir.out.iterdir():
        if path.name != "checkpoint-30":
            path.rename(tmp_path / path.name)
    assert save(run_dir, hub, tmp_path).startswith("nothing")


def test_a_checkpoint_that_nobody_had_time_to_record_counts(
    hub: Emulator, run_dir: RunDir, tmp_path: Path
) -> None:
    """The trainer was killed while it hashed; one that is cut off is passed over."""
    task(run_dir)
    train(run_dir, range(1, 11))
    make_checkpoint(run_dir, 20, health=None)
    cut = make_checkpoint(run_dir, 30, health=None) / "model.safetensors"
    cut.write_bytes(cut.read_bytes()[:-10])
    assert save(run_dir, hub, tmp_path) == f"checkpoint-20 in hf://{REPO}/{RUN}"


def test_a_mirror_that_works_is_waited_for_and_then_ended(
    hub: Emulator, run_dir: RunDir, tmp_path: Path
) -> None:
    """Two processes must not change one store."""
    root = tmp_path / "store"
    task(run_dir)
    known = {**os.environ, "AXR_STORE": str(root)}
    assert start_mirror(run_dir, known)
    trained_to_the_end(run_dir)
    assert "the model in" in save(run_dir, hub, tmp_path, AXR_STORE=str(root))
    assert is_free(run_dir.path / LOCK)
    assert stored_steps(root)[-1] == 20
    assert (root / RUN / "model.json").is_file()


def test_a_mirror_in_trouble_does_not_hold_a_rescue_up(
    hub: Emulator, run_dir: RunDir, tmp_path: Path
) -> None:
    """It may wait for minutes before it tries again."""
    (tmp_path / "file").touch()
    broken = str(tmp_path / "file" / "store")
    task(run_dir)
    train(run_dir, range(1, 11))
    assert start_mirror(run_dir, {**os.environ, "AXR_STORE": broken})
    until(lambda: (read_json(run_dir.path / "store.json") or {}).get("trouble"), 20.0)
    assert save(run_dir, hub, tmp_path, AXR_STORE=broken) == f"checkpoint-10 in hf://{REPO}/{RUN}"
    assert is_free(run_dir.path / LOCK)


def test_a_run_without_anything_says_so(run_dir: RunDir) -> None:
    """The process itself: its last line is its outcome."""
    command = [sys.executable, "-m", "pod.rescue", "--run-dir", str(run_dir.path), "--run", RUN]
    answer = subprocess.run(command, capture_output=True, check=True).stdout.decode()
    assert json.loads(answer.splitlines()[-1])["saved"].startswith("nothing")
