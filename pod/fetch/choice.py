"""Which files of a repository a training needs: one format of the weights, and no others.

transformers takes `model.safetensors`, else what `model.safetensors.index.json` names, else the
same of `pytorch_model.bin`; an adapter is `adapter_model` in the same two formats. Whatever else a
repository holds (weights for other libraries, `original/`, a second set of shards) only costs time
and disk. `datasets` finds its files by the configurations in README.md, so that one is data too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from pod.fetch.inputs import Input
from pod.fetch.snapshot import RemoteFile

# Of a model besides its weights: configuration, vocabulary, templates.
TEXTS = (
    ".json",
    ".txt",
    ".jinja",
    ".model",
    ".tiktoken",
    ".yaml",
    ".yml",
    ".spm",
    ".bpe",
    ".vocab",
)
TEMPLATES = "additional_chat_templates/"
NOT_READ = ("training_args.json", "license.txt", "notice.txt", "use_policy.txt", "requirements.txt")
# Stand beside the data, and `datasets` reads them.
DESCRIPTIONS = ("README.md", "dataset_infos.json", ".huggingface.yaml")
_SHARD = re.compile(r"(?P<stem>.+)-\d{5}-of-\d{5}\.(?P<suffix>safetensors|bin)")
STEMS = ("model", "pytorch_model", "adapter_model")
FORMATS = ("safetensors", "bin")


def choose(files: Sequence[RemoteFile], wanted: Input) -> list[RemoteFile]:
    """The files of a listing that this input reads."""
    if wanted.part == "data":
        return [file for file in files if _is_data(file.path, wanted.data_files)]
    chosen = [file for file in files if _is_text(file.path, code=wanted.code)]
    return chosen + _weights(files) if wanted.part == "weights" else chosen


def _is_data(path: str, data_files: Sequence[str]) -> bool:
    if path in DESCRIPTIONS:
        return True
    if data_files:
        return any(path == name or fnmatchcase(path, name) for name in data_files)
    hidden = any(part.startswith(".") for part in PurePosixPath(path).parts)
    return not hidden and PurePosixPath(path).name.lower() not in ("license", "license.txt")


def _is_text(path: str, *, code: bool) -> bool:
    name = PurePosixPath(path).name.lower()
    if name.endswith(".py"):
        return code
    if "/" in path and not path.startswith(TEMPLATES):
        return False
    return name.endswith(TEXTS) and not name.endswith(".index.json") and name not in NOT_READ


def _weights(files: Sequence[RemoteFile]) -> list[RemoteFile]:
    """Of the model and of an adapter, each in the first format that is there, with its index."""
    top = {file.path: file for file in files if "/" not in file.path}
    chosen: list[RemoteFile] = []
    adapter = _set_of(top, ("adapter_model",))
    model = _set_of(top, ("model", "pytorch_model"))
    if (
        not adapter and not model
    ):  # named otherwise: by code of the repository, or a base_model_config
        model = [file for name, file in top.items() if name.endswith(".safetensors")]
        model = model or [file for name, file in top.items() if name.endswith(".bin")]
    for file in (*adapter, *model):
        chosen.append(file)
    return chosen


def _set_of(top: dict[str, RemoteFile], stems: Sequence[str]) -> list[RemoteFile]:
    for suffix in FORMATS:
        for stem in stems:
            whole = f"{stem}.{suffix}"
            if whole in top:
                return [top[whole]]
            shards = [
                file
                for name, file in top.items()
                if (match := _SHARD.fullmatch(name)) and match.groups() == (stem, suffix)
            ]
            index = f"{whole}.index.json"
            if shards:
                return shards + ([top[index]] if index in top else [])
    return []
