"""What we read out of axolotl's own keys, and the few settings of axolotl that can't work here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher

from yaml.nodes import MappingNode

from runner.block import NAMES, RawBlock, dotted
from runner.finding import Finding, stop, warn
from runner.settings import RunnerSettings
from runner.values import flag, number, whole
from runner.yaml_source import YAML_TAG, Path, Source

AUTOMATIC_RESUME = "loss_watchdog_automatic_resume"

# Keys whose value is a path or a hub name; nobody expands $VAR, ~ or {{ }} in them.
PLACE_KEYS = (
    "base_model",
    "base_model_config",
    "tokenizer_config",
    "processor_config",
    "lora_model_dir",
    "deepspeed",
    "dataset_prepared_path",
    "output_dir",
    "hub_model_id",
)
# Settings of the runner block; the ones taken off could also be meant for axolotl or a plugin.
OURS_ALONE = frozenset(RunnerSettings.model_fields) - {"callbacks", "debug", "deepspeed", "env"}
DATASET_KEYS = ("datasets", "test_datasets", "pretraining_dataset")
_PLACEHOLDER = re.compile(r"\$\w+|\$\{[^}]*\}?|\{\{.*?(\}\}|$)|^~")


def apply_watchdog(block: RawBlock, axolotl: Mapping[str, object], source: Source) -> None:
    """Let axolotl's loss_watchdog_* keys fill what the block leaves open; the block always wins.

    axolotl's own watchdog counts steps and ends in a normal save; ours counts log entries.
    """
    fill = _Fill(block, axolotl, source)
    fill("loss_watchdog_threshold", "spike", "threshold", number())
    spike = block.values.get("spike")
    if isinstance(spike, dict) and "threshold" in spike:
        fill("loss_watchdog_patience", "spike", "threshold_patience", whole(least=1))
    fill(AUTOMATIC_RESUME, "resume", "enabled", flag)


@dataclass(frozen=True)
class _Fill:
    block: RawBlock
    axolotl: Mapping[str, object]
    source: Source

    def __call__(self, key: str, part: str, name: str, read: Callable[[object], object]) -> None:
        value = self.axolotl.get(key)
        if value is None:
            return
        at = self.source.place((key,))
        try:
            plain = read(value)
        except ValueError as error:
            hint = "correct the value or remove the key"
            self.block.findings.append(stop("wrong-value", f"{key}: {error}", hint, key=key, at=at))
            return
        values = self.block.values.get(part, {})
        if isinstance(values, bool):  # `resume: false` is short for `resume: {enabled: false}`
            values = {"enabled": values}
        if not isinstance(values, dict):
            return  # refused with the rest of the block
        self.block.values[part] = {name: plain, **values}
        if name == "enabled" and values.get(name, plain) != plain:
            message = f"{key} says otherwise than {self.block.name}.{part}, which holds"
            self.block.findings.append(warn("contradiction", message, "remove one", key=key, at=at))


def refused_keys(axolotl: Mapping[str, object], source: Source) -> Iterator[Finding]:
    """Stops for what would ruin a run here: auto_find_batch_size, and placeholders in paths."""
    if axolotl.get("auto_find_batch_size"):
        message = (
            "auto_find_batch_size: after an out-of-memory error it starts over at step 0 with the "
            "weights already trained, and calls that a success"
        )
        hint = "remove it: the runner halves micro_batch_size itself and resumes"
        key = "auto_find_batch_size"
        yield stop("auto-find-batch-size", message, hint, key=key, at=source.place((key,)))
    for path, value in places(axolotl):
        match = _PLACEHOLDER.search(value)
        if match:
            message = f"{dotted(path)}: {match.group()} is not expanded by YAML or axolotl"
            hint = "write the path itself"
            if path == ("output_dir",):
                hint += ", or leave output_dir out: the run's own folder is used"
            yield stop("placeholder", message, hint, key=dotted(path), at=source.place(path))


def places(axolotl: Mapping[str, object]) -> Iterator[tuple[Path, str]]:
    """Each path or hub name in the file, with where it stands."""
    for key in PLACE_KEYS:
        value = axolotl.get(key)
        if isinstance(value, str):
            yield (key,), value
    for key in DATASET_KEYS:
        value = axolotl.get(key)
        if isinstance(value, str):
            yield (key,), value
        for index, dataset in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(dataset, dict):
                base: Path = (key, index) if isinstance(value, list) else (key,)
                yield from _dataset_places(base, dataset)


def _dataset_places(base: Path, dataset: Mapping[object, object]) -> Iterator[tuple[Path, str]]:
    for key in ("path", "data_files"):
        value = dataset.get(key)
        if isinstance(value, str):
            yield (*base, key), value
        for index, each in enumerate(value if isinstance(value, list) else []):
            if isinstance(each, str):
                yield (*base, key, index), each


def template_places(axolotl: Mapping[str, object]) -> Iterator[tuple[Path, str]]:
    """Where a chat template may be the path of a file; a template's own {{ }} is no placeholder."""
    value = axolotl.get("chat_template_jinja")
    if isinstance(value, str):
        yield ("chat_template_jinja",), value
    for key in DATASET_KEYS:
        datasets = axolotl.get(key)
        for index, dataset in enumerate(datasets if isinstance(datasets, list) else []):
            value = dataset.get("chat_template_jinja") if isinstance(dataset, dict) else None
            if isinstance(value, str):
                yield (key, index, "chat_template_jinja"), value


def odd_keys(source: Source) -> Iterator[Finding]:
    """Top-level keys that are a misspelled runner block, or no text at all."""
    for entry in source.entries(source.root):
        at = entry.key_span.place
        if entry.key.tag not in (YAML_TAG + "str", YAML_TAG + "merge"):
            kind = entry.key.tag.rpartition(":")[2]
            message = f"the key {entry.name} is read as {kind}, not as text"
            yield stop("key", message, "put it in quotes or remove it", key=entry.name, at=at)
        elif entry.name not in NAMES and _looks_like_ours(entry.name, entry.value):
            message = (
                f"unknown block {entry.name}: its settings would not be read, price limit included"
            )
            yield stop("unknown-block", message, "did you mean runner?", key=entry.name, at=at)


def misplaced_keys(axolotl: Mapping[str, object], source: Source) -> Iterator[Finding]:
    """Warnings for settings of the runner that stand at the top level, where nothing reads them."""
    for key in axolotl:
        if key in OURS_ALONE:
            message = f"{key} at the top level is not read"
            hint = f"move it into the runner block: runner.{key}"
            yield warn("misplaced", message, hint, key=key, at=source.place((key,)))


def nothing_to_merge(
    axolotl: Mapping[str, object], settings: RunnerSettings | None, source: Source
) -> Iterator[Finding]:
    """A warning for `merge` where the training makes no adapter."""
    if settings is not None and settings.merge and not axolotl.get("adapter"):
        at = next((at for name in NAMES if (at := source.place((name, "merge"))) != (1, 1)), (1, 1))
        message = "merge: without `adapter` the whole model is trained, and nothing is merged"
        yield warn("nothing-to-merge", message, "remove it", key="merge", at=at)


def _looks_like_ours(name: str, value: object) -> bool:
    if not isinstance(value, MappingNode):
        return False
    near = max(SequenceMatcher(None, name.lower(), ours).ratio() for ours in NAMES) >= 0.75
    keys = {str(key.value) for key, _ in value.value}
    return near and bool(keys & set(RunnerSettings.model_fields))


def misread_words(axolotl: Mapping[str, object], source: Source) -> Iterator[Finding]:
    """Words that axolotl documents and YAML 1.1 takes for truth values, such as `no`."""
    for key in ("save_strategy", "eval_strategy"):
        if axolotl.get(key) is False:
            message = f"{key}: YAML 1.1 reads a bare no as false, which axolotl refuses"
            yield warn("yaml-1.1", message, 'write "no"', key=key, at=source.place((key,)))
