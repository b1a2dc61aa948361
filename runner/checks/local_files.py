"""Files that the task file names and that are not there.

A path that looks like one is never taken for the name of something on the hub: axolotl would ask
the hub for it, and its answer (401 or 404) sends people to look at their tokens.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from runner.axolotl_keys import DATASET_KEYS, places, template_places
from runner.block import dotted
from runner.checks.ground import Ground
from runner.checks.placeholders import is_placeholder
from runner.finding import Finding, stop, warn
from runner.gateway import RENTED
from runner.taskfile import TaskFile
from runner.yaml_source import Path

# Names of loaders of the `datasets` library, which streamed data sets may have as their path.
LOADERS = ("json", "csv", "parquet", "arrow", "text", "xml", "webdataset", "imagefolder")
SUFFIXES = (
    *(".json", ".jsonl", ".csv", ".tsv", ".parquet", ".arrow", ".txt", ".xml", ".yml", ".yaml"),
    *(".gz", ".zst", ".bz2", ".xz", ".zip", ".tar", ".jinja", ".jinja2", ".safetensors", ".bin"),
)
# What axolotl brings in deepspeed_configs/ (0.19), and what older releases had there.
SHIPPED_DEEPSPEED = re.compile(
    r"(.*/)?deepspeed(_configs)?/zero[123](_torch_compile|_bf16(_cpuoffload_(all|params))?)?\.json"
)
IN_IMAGE = ("/workspace/axolotl/", "/root/", "/opt/", "/usr/")
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9_][\w.-]*)?")
_NOT_READ = ("output_dir", "dataset_prepared_path", "hub_model_id")


def looks_local(value: str) -> bool:
    """Whether a value must mean a file or folder, whatever lies there."""
    if "://" in value:
        return False
    return (
        value.startswith((".", "/"))
        or value.endswith(("/", *SUFFIXES))
        or "\\" in value
        or value.count("/") > 1
        or not HUB_NAME.fullmatch(value)
    )


def is_local(value: str, ground: Ground) -> bool:
    """Whether a value means a file or folder: by its look, or because (a part of) it is there."""
    if "://" in value:
        return False
    head = value.partition("/")[0]
    return (
        looks_local(value)
        or ground.found(value) is not None
        or ground.left_behind(value)
        or ("/" in value and ground.found(head) is not None)
    )


def file_findings(task: TaskFile, ground: Ground) -> Iterator[Finding]:
    """A stop for each local path that leads to nothing, with near misses."""
    yield from _loaders(task)
    for path, value in _local_places(task, ground):
        finding = _missing(task, ground, path, value)
        if finding is not None:
            yield finding


def _local_places(task: TaskFile, ground: Ground) -> Iterator[tuple[Path, str]]:
    for path, value in places(task.axolotl):
        if path[-1] in _NOT_READ or not value.strip() or is_placeholder(value):
            continue
        if "data_files" in path:
            beside = _path_beside(task, path)
            if beside in LOADERS or is_local(beside, ground):
                yield path, value  # else it is a file of that data set on the hub
        elif path[-1] == "path" and value in LOADERS:
            continue
        elif path == ("deepspeed",) or is_local(value, ground):
            yield path, value
    for path, value in template_places(task.axolotl):
        if value.endswith((".jinja", ".jinja2")) and not set(value) & set("{\n"):
            yield path, value


def _path_beside(task: TaskFile, path: Path) -> str:
    value: object = dict(task.axolotl)
    for step in path[: path.index("data_files")]:
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int):
            value = value[step]
    beside = value.get("path") if isinstance(value, dict) else None
    return beside if isinstance(beside, str) else ""


def _loaders(task: TaskFile) -> Iterator[Finding]:
    """axolotl 0.19 takes `path: json` for a data set of that name on the hub."""
    for key in ("datasets", "test_datasets"):
        for index, dataset in enumerate(_list(task.axolotl.get(key))):
            name = dataset.get("path") if isinstance(dataset, dict) else None
            if isinstance(dataset, dict) and name in LOADERS and dataset.get("data_files"):
                where = dotted((key, index, "path"))
                yield stop(
                    "loader-as-path",
                    f"{where}: axolotl would ask the hub for a data set named {name}",
                    f"write the file as path, and ds_type: {name}",
                    key=where,
                    at=task.place(key, index, "path"),
                )


def _missing(task: TaskFile, ground: Ground, path: Path, value: str) -> Finding | None:
    key, at = dotted(path), task.place(*path)
    level = warn if task.settings.entry else stop  # the script may make it
    if path == ("deepspeed",) and (SHIPPED_DEEPSPEED.fullmatch(value) or value.startswith("{")):
        return None
    if "\\" in value:
        message = f"{key}: {value} is a path of Windows, which no pod has"
        return stop("missing-file", message, "write it with / and from here", key=key, at=at)
    if os.path.isabs(value):
        return _absolute(task, ground, key, at, value)
    if ground.files is None or ground.found(value):
        return None
    if os.path.normpath(os.path.join(ground.folder, value)).startswith("..") and ground.carried:
        message = f"{key}: {value} leads out of the repository, and no pod gets what lies there"
        return level("outside", message, "move it into the repository", key=key, at=at)
    if ground.left_behind(value):
        message = f"{key}: {value} is here, but not in git, so no pod gets it"
        return level("not-carried", message, "commit it, or take it off .gitignore", key=key, at=at)
    message = f"{key}: there is no {value} beside the task file or from the root of the repository"
    return level("missing-file", message, _advice(ground, path, value), key=key, at=at)


def _absolute(
    task: TaskFile, ground: Ground, key: str, at: tuple[int, int], value: str
) -> Finding | None:
    if ground.files is None or value.startswith(IN_IMAGE):
        return None
    rented = any(cloud in RENTED for cloud in ground.clouds)
    settings = task.settings
    if not rented:
        if os.path.exists(value) or ground.found(value):
            return None
        level = warn if settings.entry else stop
        message = f"{key}: there is no {value} on this machine"
        return level("missing-file", message, "correct the path", key=key, at=at)
    if settings.entry or settings.network_volume:
        return None
    message = f"{key}: a new pod has nothing at {value}"
    hint = "commit the file and name it from here, or let entry: bring it"
    return warn("not-carried", message, hint, key=key, at=at)


def _advice(ground: Ground, path: Path, value: str) -> str:
    near = ground.near(value)
    if near:
        return f"did you mean {' or '.join(near)}?"
    if path == ("deepspeed",):
        return (
            "commit it beside the task file, or name one of axolotl's: deepspeed_configs/zero2.json"
        )
    if path[0] in DATASET_KEYS:
        return "commit the file, or name a data set of the hub as owner/name"
    return "commit it, or name one of the hub as owner/name"


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
