"""Where the tokenised data of a run lie: in a folder named by all that they follow from.

axolotl's own key (a hash below `dataset_prepared_path`) knows neither what is in a local file nor
which tokenizer stands behind a name (axolotl issue 1265). Ours takes the whole configuration but
for what can't change a token, the content of each local file, the commit of each repository, and
the versions of the libraries. Where one of these is not known there is no key, and the run keeps
its data for itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from pod.fetch.choice import TEXTS
from pod.fetch.inputs import LOADERS, datasets
from pod.rundir import sha256_of

LOCK = "datasets_prep.lock"  # axolotl's own, in the folder
LIBRARIES = ("axolotl", "transformers", "tokenizers", "datasets")
TOKENIZERS = ("base_model", "base_model_config", "tokenizer_config", "processor_config")
# What is about the optimizer, the adapter, memory, saving and reports. All else counts, known to us
# or not.
_NO_TOKEN = re.compile(
    r"adam_\w+|adapter|attn_implementation|(flash|sdp|xformers|flex|sage|eager)_attention|batch_size"
    r"|bf16|fp16|fp8|tf32|bfloat16|float16|comet_\w+|cosine_\w+|dataloader_\w+|dataset_num_proc"
    r"|dataset_prepared_path|dataset_processes|ddp\w*|debug|deepspeed|early_stopping_patience"
    r"|eval_(batch_size|steps|strategy)|evals_per_epoch|flash_attn_\w+|fsdp\w*|gptq\w*"
    r"|gradient_\w+|group_by_length|hf_use_auth_token|hub_\w+|include_tokens_per_second"
    r"|learning_rate|liger_\w+|load_in_\w+|local_rank|logging_\w+|loraplus_\w+|lora_\w+"
    r"|loss_watchdog_\w+|lr_\w+|max_grad_norm|max_steps|merge_lora|micro_batch_size|mlflow_\w+"
    r"|neftune_\w+|num_epochs|optim\w*|output_dir|peft\w*|plugins|profiler_\w+|relora\w*"
    r"|resume_from_checkpoint|save_\w+|saves_per_epoch|strict|tensorboard_\w+|torch_compile\w*"
    r"|torch_dtype|use_tensorboard|use_wandb|wandb_\w+|warmup_\w+|weight_decay"
)
# A plugin of axolotl's own is about kernels, losses and quantization; others may tokenise.
_OWN_PLUGINS = ("axolotl.integrations.", "pod.plugin.")


def key_of(axolotl: Mapping[str, object], root: Path, axolotl_env: Path) -> str | None:
    """The name of the folder; None when something that the data follow from is not known.

    `axolotl` is the adapted configuration, its revisions written out; relative paths count from
    `root`.
    """
    if axolotl.get("streaming") or axolotl.get("pretraining_dataset"):
        return None
    try:
        facts = {
            "settings": {k: v for k, v in axolotl.items() if not _NO_TOKEN.fullmatch(str(k))},
            "plugins": [p for p in _listed(axolotl.get("plugins")) if not _is_own(p)],
            "files": dict(_files(axolotl, root)),
            "libraries": _versions(axolotl_env),
        }
    except _Unknown:
        return None
    text = json.dumps(facts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def drop_halves(prepared: Path) -> list[str]:
    """Take away data sets of which a trainer wrote only a part before it died: axolotl would try to
    load them in each attempt. Nothing is done while a trainer holds the folder's lock. Their names.
    """
    dropped = []
    with contextlib.suppress(OSError), (prepared / LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for folder in sorted(prepared.iterdir()):
            # `save_to_disk` writes this file last.
            if folder.is_dir() and not (folder / "state.json").exists():
                shutil.rmtree(folder)
                dropped.append(folder.name)
    return dropped


class _Unknown(Exception):
    """Something can't be told apart from its next version."""


def _files(axolotl: Mapping[str, object], root: Path) -> Iterator[tuple[str, object]]:
    """What stands behind each name: contents of local files, nothing more for a pinned name."""
    pinned = axolotl.get("revision_of_model")
    for key in TOKENIZERS:
        name = axolotl.get(key)
        if isinstance(name, str) and (root / name).is_dir():
            yield key, _folder(root / name, TEXTS)
        elif isinstance(name, str) and not pinned:
            raise _Unknown(name)
    for place, dataset in datasets(axolotl):
        where = ".".join(map(str, place))
        path, files = str(dataset.get("path") or ""), _listed(dataset.get("data_files"))
        if path in LOADERS or (root / path).is_dir():
            for index, name in enumerate(files):
                yield f"{where}.data_files.{index}", _contents(root, str(name))
            if path not in LOADERS and not files:
                yield where, _folder(root / path)
        elif (root / path).exists():
            yield where, _contents(root, path)
        elif not dataset.get("revision"):
            raise _Unknown(path)
        yield from _template(f"{where}.chat_template_jinja", dataset, root)
    yield from _template("chat_template_jinja", axolotl, root)


def _template(where: str, of: Mapping[str, object], root: Path) -> Iterator[tuple[str, object]]:
    value = of.get("chat_template_jinja")
    if isinstance(value, str) and len(value) < 4096 and "\n" not in value:
        with contextlib.suppress(OSError):
            if (root / value).is_file():
                yield where, sha256_of(root / value)


def _contents(root: Path, name: str) -> dict[str, str]:
    """The hash of a file, or of each that a pattern names."""
    path = root / name
    found = [path] if path.is_file() else sorted(map(Path, glob.glob(str(path), recursive=True)))
    if not found or "://" in name:
        raise _Unknown(name)
    return {str(each): sha256_of(each) for each in found if each.is_file()}


def _folder(folder: Path, endings: tuple[str, ...] = ()) -> dict[str, str]:
    """The hash of each file below a folder; with endings, of those directly in it."""
    paths = folder.iterdir() if endings else folder.rglob("*")
    return {
        str(path.relative_to(folder)): sha256_of(path)
        for path in sorted(paths)
        if path.is_file() and (not endings or path.name.endswith(endings))
    }


def _versions(axolotl_env: Path) -> list[str]:
    folders = axolotl_env.glob("lib/python*/site-packages/*.dist-info")
    names = sorted(os.path.basename(folder) for folder in folders)
    return [name for name in names if name.partition("-")[0] in LIBRARIES]


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _is_own(plugin: object) -> bool:
    return str(plugin).startswith(_OWN_PLUGINS)
