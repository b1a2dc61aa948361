"""`runner.matrix`: one run for each combination of values, each with a task file of its own.

    runner:
      matrix:
        learning_rate: [1e-4, 2e-4]
        lora_r: [8, 16]              # 4 runs

A key is axolotl's or, as `runner.spike.sensitivity`, one of the runner block; a dotted path leads
into mappings and lists (`datasets.0.path`). A variant's task file is the plain data with the values
set and the matrix taken out. What would collide gets the variant's number at its end: the hub
repository and the name in W&B, unless the matrix itself sets them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from itertools import product
from typing import Any

import yaml

from runner.block import NAMES
from runner.finding import TaskFileError, stop
from runner.taskfile import TaskFile, parse_task_file
from runner.yaml_source import construct

# Names of which each run needs one of its own.
OWN = ("hub_model_id", "wandb_name")


@dataclass(frozen=True)
class Variant:
    """One combination: `name` goes after the task file's, `values` are what it sets."""

    number: int
    name: str
    values: Mapping[str, object]
    text: str


def variants(task: TaskFile) -> list[Variant]:
    """All combinations, the last key changing fastest; empty without a matrix. TaskFileError when a
    key leads nowhere, or when a variant is no good task file.
    """
    if not task.settings.matrix:
        return []
    # Not the block's own reading of it, in which a number may be text.
    data = _plain(task)
    matrix = data[_block(data)]["matrix"]
    combinations = [dict(zip(matrix, values, strict=True)) for values in product(*matrix.values())]
    return [_variant(task, number, values) for number, values in enumerate(combinations, start=1)]


def variant_name(task_file: str, variant: Variant) -> str:
    """What a variant's run is called: the path with the values behind it."""
    return f"{task_file}#{variant.name}"


def _variant(task: TaskFile, number: int, values: dict[str, object]) -> Variant:
    data = _plain(task)
    block = _block(data)
    data[block] = {key: value for key, value in data[block].items() if key != "matrix"}
    for key, value in values.items():
        _put(task, data, block, key, value)
    for key in OWN:
        if isinstance(data.get(key), str) and key not in values:
            data[key] = f"{data[key]}-{number}"
    name = f"{number}-" + ",".join(
        f"{_short(key)}={_shown(value)}" for key, value in values.items()
    )
    text = yaml.safe_dump(data, sort_keys=False, width=math.inf, allow_unicode=True)
    text = f"# {task.name}: {name}\n{text}"
    parse_task_file(text, f"{task.name}#{name}")
    return Variant(number, name, values, text)


def _plain(task: TaskFile) -> dict[str, Any]:
    data = construct(task.source)
    assert isinstance(data, dict), "a task file is a mapping"
    return deepcopy(data)


def _block(data: Mapping[str, Any]) -> str:
    return next(name for name in NAMES if name in data)


def _put(task: TaskFile, data: Any, block: str, key: str, value: object) -> None:
    steps = [block, *key.split(".")[1:]] if key.split(".")[0] in NAMES else key.split(".")
    target = data
    for step in steps[:-1]:
        try:
            target = target[int(step)] if isinstance(target, list) else target.setdefault(step, {})
        except (IndexError, ValueError):
            target = None
        if not isinstance(target, dict | list):
            break
    last = steps[-1]
    if isinstance(target, dict):
        target[last] = value
    elif isinstance(target, list) and last.isdigit() and int(last) < len(target):
        target[int(last)] = value
    else:
        hint = "name a key of axolotl or of the runner block, such as learning_rate"
        at = task.setting_place("matrix")
        raise TaskFileError(
            task.name,
            [
                stop(
                    "matrix", f"matrix: {key} leads nowhere in this file", hint, key="matrix", at=at
                )
            ],
        )


def _short(key: str) -> str:
    return key.rpartition(".")[2] if not key.rpartition(".")[2].isdigit() else key


def _shown(value: object) -> str:
    """A value as a part of a name: short, and nothing that means something to a path."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return re.sub(r"[^\w.+-]+", "_", text.rpartition("/")[2])[:40].strip("_") or "_"
