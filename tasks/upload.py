"""Publish from the pod: the healthy final weights, to `model/` on the volume and to the hub when
asked.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from prefect import task
from prefect.logging import get_run_logger

from pod.rundir import RunDir
from runner.errors import TrainingFailed

# Optimizer and trainer state stay with the checkpoints: `model/` is what one loads or shares.
LEFT_OUT = ("checkpoint-*", "debug.log", "runs", "*.tmp", "trainer_state.json", "training_args.bin")


@task
def gather_model(folder: RunDir) -> Path:
    """`model/` beside the output folder: the final files without checkpoints, hard-linked, so it
    costs no disk.
    """
    target = folder.path / "model"
    if target.exists():
        return target
    fresh = folder.path / "model.new"
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(
        folder.out, fresh, copy_function=_link_or_copy, ignore=shutil.ignore_patterns(*LEFT_OUT)
    )
    fresh.rename(target)
    return target


@task
def upload(model: Path, repository: str | None) -> str | None:
    """Upload the model to the hub as a private repository and compare what the hub lists with what
    is here.
    """
    if not repository:
        return None
    from huggingface_hub import HfApi  # the import costs 0.5 s and most local runs don't upload

    hub = HfApi(token=os.environ.get("HF_TOKEN"))
    hub.create_repo(repository, private=True, exist_ok=True)
    hub.upload_folder(
        repo_id=repository, folder_path=model, commit_message="Upload the trained model"
    )
    there = {
        entry.path: entry.size
        for entry in hub.list_repo_tree(repository, recursive=True)
        if hasattr(entry, "size")
    }
    here = {
        str(path.relative_to(model)): path.stat().st_size
        for path in model.rglob("*")
        if path.is_file()
    }
    missing = [name for name, size in here.items() if there.get(name) != size]
    if missing:
        raise TrainingFailed(
            "crash", f"the hub does not list {', '.join(missing[:3])} of {repository} as uploaded"
        )
    get_run_logger().info("Uploaded %s files to %s", len(here), repository)
    return repository


def _link_or_copy(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copy2(source, target)
    return target
