"""Keys that axolotl does not know: it drops them silently, and trains with its default.

Never a stop, for plugins add keys of their own.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches
from importlib.resources import files
from typing import Any

from yaml.nodes import Node

from runner.axolotl_keys import OURS_ALONE
from runner.block import NAMES, dotted
from runner.finding import Finding, stop, warn
from runner.taskfile import TaskFile
from runner.yaml_source import Entry, Path, Source

VERSION = "0.19.0"
# Below this similarity a key of a file with plugins from elsewhere is taken for theirs.
TYPO = 0.8

Keys = Mapping[str, Any]  # as pod/axolotl_fields.py describes


@dataclass(frozen=True)
class Known:
    """What axolotl reads, without its plugins' keys and those of each plugin."""

    version: str
    required: tuple[str, ...]
    keys: Keys
    mentioned: frozenset[str]
    plugins: Mapping[str, Keys]


@functools.cache
def known() -> Known:
    """What the axolotl that this version is made for reads."""
    text = (files("runner.data") / f"axolotl-{VERSION}.json").read_text(encoding="utf-8")
    data = json.loads(text)
    return Known(
        data["version"],
        tuple(data["required"]),
        data["keys"],
        frozenset(data["mentioned"]),
        data["plugins"],
    )


def key_findings(task: TaskFile) -> Iterator[Finding]:
    """A warning for each key that axolotl would drop, a stop for each that it can't do without."""
    axolotl = known()
    listed = _listed(task)
    ours = {name: keys for name, keys in axolotl.plugins.items() if _is_listed(name, listed)}
    foreign = any(not _is_axolotls(plugin) for plugin in listed)
    keys: dict[str, Any] = dict(axolotl.keys)
    for each in ours.values():
        keys.update(each)
    for entry in task.source.entries(task.source.root):
        name = entry.name
        if name in NAMES or name in OURS_ALONE or name == "<<":
            continue  # misplaced settings of ours are told elsewhere
        if name in keys:
            yield from _below(task.source, entry.value, keys[name], (name,))
        elif name not in axolotl.mentioned and not _is_anchor(entry, task):
            yield from _unknown(entry, (name,), keys, foreign, axolotl)
    for name in axolotl.required:
        if name not in task.axolotl:
            yield stop("missing-key", f"{name} is missing, and has no default", "add it", key=name)
        elif task.axolotl[name] is None:
            at = task.place(name)
            yield stop(
                "missing-key", f"{name} has no value, and no default", "add it", key=name, at=at
            )


def _below(source: Source, node: Node, known_keys: Any, path: Path) -> Iterator[Finding]:
    if isinstance(known_keys, list):
        for number, item in enumerate(source.items(node)):
            if not item.alias:
                yield from _below(source, item.value, known_keys[0], (*path, number))
        yield from _entries(source, node, known_keys[0], path)
    elif isinstance(known_keys, dict):
        yield from _entries(source, node, known_keys, path)


def _entries(source: Source, node: Node, keys: Keys, path: Path) -> Iterator[Finding]:
    for entry in source.entries(node):
        here = (*path, entry.name)
        if entry.name == "<<":
            continue
        if entry.name in keys:
            yield from _below(source, entry.value, keys[entry.name], here)
        else:
            hint = _near(entry.name, keys) or _elsewhere(entry.name)
            yield _warning(entry, here, hint or "remove it")


def _unknown(
    entry: Entry, path: Path, keys: Keys, foreign: bool, axolotl: Known
) -> Iterator[Finding]:
    name = entry.name
    owner = next((each for each, own in axolotl.plugins.items() if name in own), None)
    if owner is not None:
        message = f"{name} is read only by the plugin {owner}, which plugins: does not list"
        hint = f"add {owner} to plugins:, or remove the key"
        yield warn("plugin-key", message, hint, key=name, at=entry.key_span.place)
        return
    near = _near(name, keys)
    if not foreign or (near and _likeness(name, near) >= TYPO):
        yield _warning(entry, path, _homes(name, keys) or near or "remove it")


def _warning(entry: Entry, path: Path, hint: str) -> Finding:
    key = dotted(path)
    message = f"{key}: axolotl {VERSION} has no such key, and would drop it"
    return warn("unknown-key", message, hint, key=key, at=entry.key_span.place)


def _near(name: str, keys: Keys) -> str:
    plain = re.sub(r"[-\s.\u00a0]", "_", name.strip().lower())
    near = get_close_matches(plain, keys, n=1, cutoff=0.75)
    return f"did you mean {near[0]}?" if near else ""


def _likeness(name: str, hint: str) -> float:
    near = hint.removeprefix("did you mean ").rstrip("?")
    return SequenceMatcher(None, name.lower(), near).ratio()


def _elsewhere(name: str) -> str:
    return f"it belongs at the top level: {name}" if name in known().keys else ""


def _homes(name: str, keys: Keys) -> str:
    for key, below in keys.items():
        inner = below[0] if isinstance(below, list) else below
        if isinstance(inner, dict) and name in inner:
            return f"it belongs below {key}"
    return ""


def _is_anchor(entry: Entry, task: TaskFile) -> bool:
    """A block that is only there to be merged elsewhere: `defaults: &defaults`."""
    before = task.text[entry.key_span.end : entry.span.start]
    written = task.text[entry.span.start : entry.span.start + 1]
    return "&" in before or written == "&"


def _listed(task: TaskFile) -> list[str]:
    value = task.axolotl.get("plugins")
    plugins = value if isinstance(value, list) else [value]
    return [each for each in plugins if isinstance(each, str)]


def _is_listed(name: str, listed: list[str]) -> bool:
    package, _, word = name.rpartition(".")
    return any(each.startswith(package) and each.endswith(f".{word}") for each in listed)


def _is_axolotls(plugin: str) -> bool:
    return any(_is_listed(name, [plugin]) for name in known().plugins)
