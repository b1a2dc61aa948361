"""What went into a model: its base and its data sets, at which revisions, under which licence.

Revisions are those that were trained with: the commits that the pod's downloads wrote down
(`fetched.json` of the run's folder: {repos: [{repo, type, revision, …}]}), what the task file pins,
else what the local cache of the hub holds. One that nobody knows stays unknown: the newest on the
hub may be another.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from huggingface_hub import HfApi, constants
from huggingface_hub.errors import HfHubHTTPError

from pod.rundir import RunDir, read_json
from runner.card_metadata import known_license
from runner.model_card import Source
from runner.sources import source_root
from runner.taskfile import TaskFile

TRAINED_ON = ("datasets", "pretraining_dataset")


def base_of(task: TaskFile, run_dir: RunDir, task_file: str) -> Source:
    """The model that was trained on."""
    name = str(task.axolotl.get("base_model") or "")
    pinned = task.axolotl.get("revision_of_model")
    return _source(name, "model", "", pinned, run_dir, task_file)


def datasets_of(task: TaskFile, run_dir: RunDir, task_file: str) -> list[Source]:
    """The data sets that it was trained on; of a loader's name (`json`) its files."""
    found = []
    for entry in _entries(task.axolotl):
        form = entry.get("type")
        name = str(entry.get("data_files") or entry.get("path") or "")
        kind = form if isinstance(form, str) else "custom"
        found.append(_source(name, "dataset", kind, entry.get("revision"), run_dir, task_file))
    return found


def license_of(base: Source, environment: Mapping[str, str] = os.environ) -> str | None:
    """The licence that the hub names for the base model; None when it names none, or can't be
    asked now: a card does without it.
    """
    if base.hub_id is None:
        return None
    hub = HfApi(
        endpoint=environment.get("HF_ENDPOINT") or None,
        token=environment.get("HF_TOKEN") or False,
    )
    try:
        card = hub.model_info(base.hub_id, timeout=20.0).card_data
    except (HfHubHTTPError, OSError, ValueError, RuntimeError):
        return None
    return known_license(card.get("license") if card is not None else None)


def _entries(axolotl: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    for key in TRAINED_ON:
        value = axolotl.get(key)
        for entry in value if isinstance(value, list) else [value]:
            if isinstance(entry, str):
                yield {"path": entry}
            elif isinstance(entry, Mapping):
                yield {str(name): each for name, each in entry.items()}


def _source(
    name: str, kind: str, form: str, pinned: object, run_dir: RunDir, task_file: str
) -> Source:
    is_data = kind == "dataset"
    local = _is_here(name, run_dir, task_file)
    revision = None
    if not local:
        asked = str(pinned) if pinned else None
        revision = _fetched(name, kind, asked, run_dir) or asked or _cached(name, kind)
    return Source(name, "dataset" if is_data else "model", revision, form, local)


def _is_here(name: str, run_dir: RunDir, task_file: str) -> bool:
    if name.startswith(("/", ".", "~")):
        return True
    root = source_root(run_dir.path, Path(os.environ.get("AXR_REPOSITORY", ".")))
    folders = ((root / task_file).parent, root)
    return any((folder / name).exists() for folder in folders)


def _fetched(name: str, kind: str, asked: str | None, run_dir: RunDir) -> str | None:
    try:
        noted = read_json(run_dir.path / "fetched.json") or {}
    except (OSError, ValueError):
        return None
    same = [
        entry
        for entry in noted.get("repos") or []
        if (entry.get("repo"), entry.get("type")) == (name, kind)
    ]
    asked_so = [entry for entry in same if entry.get("asked") == asked]
    found = [entry["revision"] for entry in asked_so or same if entry.get("revision")]
    return str(found[0]) if found else None


def _cached(name: str, kind: str) -> str | None:
    folder = Path(constants.HF_HUB_CACHE) / f"{kind}s--{name.replace('/', '--')}"
    try:
        return (folder / "refs" / "main").read_text().strip() or None
    except (OSError, ValueError):
        return None
