"""The axolotl.yml that the trainer gets: the task file with what this runner must own changed.

Everything else stays as it was, to the byte: order, comments, values. Taken out: the runner block
(axolotl pastes its file into the model card), the keys that make axolotl publish, resume or stop by
itself. Set: output_dir, dataset_prepared_path, save_total_limit, our plugin, the absolute form
of local paths that exist, the commits of what was fetched from the hub, and what an attempt
overrides (a smaller batch).
"""

from __future__ import annotations

import glob
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import yaml

from runner.axolotl_keys import AUTOMATIC_RESUME, places, template_places
from runner.block import NAMES
from runner.changes import Append, Change, Remove, Set, changed, same
from runner.finding import Finding, TaskFileError, stop, warn
from runner.splice import splice
from runner.taskfile import TaskFile
from runner.values import plain_number
from runner.yaml_source import Source, construct

PLUGIN = "pod.plugin.RunnerPlugin"
LEAST_CHECKPOINTS = 4  # a rollback needs a healthy one besides those saved while it gets worse
REMOVED = (
    "hub_model_id",
    "hub_strategy",
    "hub_revision",
    "push_dataset_to_hub",
    "push_to_hub",
    "loss_watchdog_threshold",
    "loss_watchdog_patience",
    AUTOMATIC_RESUME,
    "auto_resume_from_checkpoints",
    "wandb_run_id",  # the runner decides both for all writers of the run (runner.wandb_run)
    "wandb_mode",
    "resume_from_checkpoint",
)
_NOTE = "set by axolotl-runner"
_LOADERS = ("json", "csv", "parquet", "arrow", "text", "xml", "webdataset", "imagefolder")


@dataclass(frozen=True)
class Adaptation:
    """The trainer's file, what was changed against the task file, and what to tell the user."""

    text: str
    changes: tuple[Change, ...]
    warnings: tuple[Finding, ...]


def adapt(
    task: TaskFile,
    *,
    run_dir: str,
    source_dir: str,
    root: str,
    planned: int | None = None,
    overrides: Mapping[str, object] = MappingProxyType({}),
    pins: Sequence[Set] = (),
    prepared: str | None = None,
) -> Adaptation:
    """Adapt a task file for a run.

    `source_dir` is the folder of the task file and `root` the repository's, both on the machine
    that trains: a relative path that exists is taken from the first, else from the second.
    `planned` is the number of optimizer steps, if it is known. `overrides` are top-level keys of
    axolotl with the values that this attempt needs, `pins` the revisions of the hub's repositories,
    `prepared` the folder of the tokenised data (default: one of the run's own). Raises ConfigError
    for a file that can't be rewritten without changing its meaning.
    """
    data = construct(task.source)
    if not isinstance(data, dict):
        raise TypeError("a TaskFile's source is a mapping")
    changes = (
        *_removals(data),
        *_settings(task.axolotl, run_dir, prepared),
        *_paths(task, source_dir, root),
        *pins,
        *_overrides(task.axolotl, overrides),
    )
    try:
        text = _rewritten(task.source, changed(data, changes), changes)
    except ValueError as error:
        hint = "write its top level as plain `key: value` lines, without anchors and merges"
        raise TaskFileError(task.name, [stop("rewrite", str(error), hint)]) from None
    return Adaptation(text, changes, cadence_warnings(task, planned=planned))


def without_block(task: TaskFile) -> str:
    """The task file as its author wrote it, paths and comments too, but for our block."""
    data = construct(task.source)
    assert isinstance(data, dict), "a TaskFile's source is a mapping"
    changes = tuple(Remove(key, comments=True) for key in NAMES if key in data)
    return _rewritten(task.source, changed(data, changes), changes) if changes else task.text


def _rewritten(source: Source, wanted: dict[str, object], changes: Sequence[Change]) -> str:
    """The text changed by spans, kept only if it reads back as what it must mean.

    Files too odd for spans (a flow mapping at the top, a value shared through an alias) are written
    anew, with the same values and without their comments.
    """
    dumped = yaml.safe_dump(wanted, sort_keys=False, width=math.inf)
    for text in (splice(source, wanted, changes, _NOTE), dumped):
        if text is not None and _reads_as(text, wanted):
            return text
    raise ValueError("the file can't be rewritten without changing its meaning")


def _reads_as(text: str, wanted: object) -> bool:
    try:
        return same(yaml.safe_load(text), wanted)
    except (yaml.YAMLError, ValueError):
        return False


def cadence_warnings(task: TaskFile, *, planned: int | None = None) -> tuple[Finding, ...]:
    """Warnings about saves: too rare, off, or without what a resume needs."""
    values = task.axolotl
    return tuple(
        warn(code, message, hint, key=key, at=task.place(key))
        for key, code, message, hint in _cadence(values, planned)
    )


def _cadence(
    values: Mapping[str, object], planned: int | None
) -> Iterator[tuple[str, str, str, str]]:
    strategy = values.get("save_strategy")
    steps = values.get("save_steps")
    if values.get("save_only_model"):
        message = (
            "save_only_model: checkpoints lack the optimizer, so no attempt can resume exactly"
        )
        yield "save_only_model", "save-only-model", message, "remove it"
    if strategy in ("no", False) and not steps:
        message = "save_strategy: no checkpoint is saved, so a loss spike costs the whole run"
        yield "save_strategy", "no-saves", message, "set save_steps"
    elif not (strategy or steps or values.get("saves_per_epoch")):
        message = "no save_steps, saves_per_epoch or save_strategy: axolotl saves once per epoch"
        yield "save_steps", "rare-saves", message, "set save_steps, so that a rollback loses little"
    elif planned is not None and isinstance(steps, int) and steps > planned:
        message = f"save_steps: {steps} is more than the {planned} steps of the run"
        yield "save_steps", "rare-saves", message, "set it lower"


def _removals(data: Mapping[str, object]) -> Iterator[Change]:
    for key in NAMES:
        if key in data:
            yield Remove(key, comments=True)
    for key in REMOVED:
        if key in data:
            yield Remove(key)


def _settings(axolotl: Mapping[str, object], run_dir: str, shared: str | None) -> Iterator[Change]:
    if PLUGIN not in _listed(axolotl.get("plugins")):
        yield Append("plugins", PLUGIN)
    yield Set(("output_dir",), os.path.join(run_dir, "out"))
    prepared = axolotl.get("dataset_prepared_path")
    if not (isinstance(prepared, str) and os.path.isabs(prepared)):
        yield Set(("dataset_prepared_path",), shared or os.path.join(run_dir, "prepared"))
    limit = plain_number(axolotl.get("save_total_limit") or 0)  # axolotl takes 0 and nothing for 4
    if limit is not None and 0 <= limit < LEAST_CHECKPOINTS:
        yield Set(("save_total_limit",), LEAST_CHECKPOINTS)


def _overrides(axolotl: Mapping[str, object], overrides: Mapping[str, object]) -> Iterator[Change]:
    for key, value in overrides.items():
        yield Set((key,), value)
    if "gradient_accumulation_steps" in overrides and "batch_size" in axolotl:
        yield Remove("batch_size")  # axolotl refuses the two together
    micro = plain_number(overrides.get("micro_batch_size"))
    evaluated = plain_number(axolotl.get("eval_batch_size") or 0)  # without it, the micro batch
    if micro is not None and evaluated is not None and evaluated > micro:
        yield Set(("eval_batch_size",), int(micro))  # the evaluation may be what did not fit


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _paths(task: TaskFile, source_dir: str, root: str) -> Iterator[Change]:
    for path, value in (*places(task.axolotl), *template_places(task.axolotl)):
        if path[-1] in ("output_dir", "dataset_prepared_path", "hub_model_id"):
            continue
        if len(path) > 1 and path[-1] == "path" and value in _LOADERS:
            continue  # the name of a loader, whatever a folder may be called
        found = _absolute(value, source_dir, root)
        if found is not None:
            yield Set(path, found)


def _absolute(value: str, source_dir: str, root: str) -> str | None:
    """The absolute form of a relative path (or pattern) that exists below one of the folders."""
    if os.path.isabs(value) or "://" in value or not value.strip() or set(value) & set("\0\n{"):
        return None
    for folder in (source_dir, root):
        candidate = os.path.normpath(os.path.join(os.path.abspath(folder), value))
        if os.path.exists(candidate) or (glob.has_magic(value) and glob.glob(candidate)):
            return candidate
    return None
