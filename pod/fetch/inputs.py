"""What a training reads from the Hugging Face hub, by axolotl's own keys.

Local files and folders, addresses and other storages stay with axolotl, and so does what is
streamed: nobody wants all of it.

Not covered: what plugins, kernels and metrics load by themselves (`may_load_more` names them).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["model", "dataset"]
Part = Literal["weights", "tokenizer", "data"]

REPO = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
LOADERS = ("json", "csv", "parquet", "arrow", "text", "xml", "webdataset", "imagefolder")
# Read with the tokenizer's or the model's own code, at the revision of base_model.
SAME_REVISION = ("base_model_config", "tokenizer_config", "processor_config")
PARTS: tuple[tuple[str, Part], ...] = (
    ("base_model", "weights"),
    ("lora_model_dir", "weights"),
    *((key, "tokenizer") for key in SAME_REVISION),
)
DATASET_KEYS = ("datasets", "test_datasets")
# With one of these set, more may come from the hub than is fetched here.
MORE = (
    "trust_remote_code",
    "use_kernels",
    "use_scattermoe",
    "use_sonicmoe",
    "eval_causal_lm_metrics",
    "do_causal_lm_eval",
    "pretraining_dataset",
    "cls_model_config",
    "trl",
)


@dataclass(frozen=True)
class Input:
    """A repository that a training reads, and which part of it.

    `revision` is what the task file asks for, None for the newest, `commit` what that was when this
    run first asked; `code`: its Python may run;
    `data_files` are names or patterns of a data set, all of it without them; `key` is where the
    file names it.
    """

    repo: str
    kind: Kind
    part: Part
    revision: str | None = None
    code: bool = False
    data_files: tuple[str, ...] = ()
    key: tuple[str | int, ...] = ()
    commit: str | None = None


def inputs(axolotl: Mapping[str, object], root: Path) -> list[Input]:
    """The repositories that this configuration names; relative paths count from `root`."""
    return [each for each in _all(axolotl) if is_repository(each.repo, root)]


def is_repository(name: str, root: Path) -> bool:
    """Whether axolotl takes this for a repository of the hub: no path that exists, no address."""
    return bool(REPO.fullmatch(name)) and name not in LOADERS and not (root / name).exists()


def may_load_more(axolotl: Mapping[str, object], root: Path) -> bool:
    """Whether the trainer may ask the hub for something that is not fetched: then it must be able
    to. `datasets` always asks for a data set of the hub, however complete the cache is.
    """
    attention = str(axolotl.get("attn_implementation") or "")
    plugins = axolotl.get("plugins") or []
    names = plugins if isinstance(plugins, list) else [plugins]
    others = [name for name in names if not str(name).startswith(("pod.", "axolotl.", "tests."))]
    if any(axolotl.get(key) for key in MORE) or "/" in attention or others:
        return True
    return any(
        not (root / str(dataset.get("path") or "")).exists()
        for _, dataset in datasets(axolotl)
        if dataset.get("path") not in LOADERS
    )


def datasets(
    axolotl: Mapping[str, object],
) -> Iterator[tuple[tuple[str | int, ...], Mapping[str, object]]]:
    """Each data set of the file with where it stands."""
    for key in DATASET_KEYS:
        value = axolotl.get(key)
        for index, dataset in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(dataset, dict):
                yield ((key, index) if isinstance(value, list) else (key,)), dataset


def _all(axolotl: Mapping[str, object]) -> Iterator[Input]:
    code = bool(axolotl.get("trust_remote_code"))
    asked = axolotl.get("revision_of_model") or axolotl.get("model_revision")
    revision = str(asked) if asked else None
    for key, part in PARTS:
        name = axolotl.get(key)
        if isinstance(name, str):
            own = revision if key != "lora_model_dir" else None
            yield Input(name, "model", part, own, code, key=(key,))
    trl = axolotl.get("trl")
    rewards = trl.get("reward_funcs") if isinstance(trl, dict) else None
    for index, name in enumerate(rewards if isinstance(rewards, list) else []):
        if isinstance(name, str) and "/" in name:  # others are functions: module.name
            yield Input(name, "model", "weights", code=code, key=("trl", "reward_funcs", index))
    if axolotl.get("streaming"):
        return
    for place, dataset in datasets(axolotl):
        path, asked = dataset.get("path"), dataset.get("revision")
        if isinstance(path, str):
            files = dataset.get("data_files")
            named = files if isinstance(files, list) else [files] if files else []
            yield Input(
                path,
                "dataset",
                "data",
                str(asked) if asked else None,
                data_files=tuple(map(str, named)) if all(map(_is_name, named)) else (),
                key=place,
            )


def _is_name(value: object) -> bool:
    return isinstance(value, str) and "://" not in value
