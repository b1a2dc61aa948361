"""From the `runner:` block as it stands in the file to RunnerSettings, with a place for each fault.

Plain scalars are taken as they are written, not as YAML 1.1 reads them (`1:30` is 90 there, `010`
is 8, `1.10` loses its zero, the key `on` is true): the settings know which of their values are
numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from runner.finding import Finding, stop, warn
from runner.settings import NotifySettings, ResumeSettings, RunnerSettings, SpikeSettings
from runner.values import found
from runner.yaml_source import YAML_TAG, Entry, Path, Source

MAX_REASONS = 50  # of one file; more are no help to anybody
NAMES = ("runner", "runpod")  # runpod: the proof of concept's name

_MODELS: Mapping[Path, type[BaseModel]] = {
    (): RunnerSettings,
    ("spike",): SpikeSettings,
    ("resume",): ResumeSettings,
    ("notify",): NotifySettings,
}
_PLAIN_TAGS = ("null", "bool", "str", "int", "float", "timestamp", "value", "seq", "map")
_KNOWN = frozenset(YAML_TAG + tag for tag in _PLAIN_TAGS)


@dataclass
class RawBlock:
    """The block as plain text, lists and mappings, and what was wrong with it on the way."""

    name: str = "runner"
    values: dict[str, object] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


def read_block(source: Source, entry: Entry) -> RawBlock:
    """Take the block out of the file; nulls are left out, so that their defaults hold."""
    block = RawBlock(entry.name)
    block.findings += duplicates(source, entry.value, (entry.name,), level="stop")
    if _is_null(entry.value):
        return block
    if not isinstance(entry.value, MappingNode):
        shown = found("" if isinstance(entry.value, SequenceNode) else entry.value.value)
        shown = "a list" if isinstance(entry.value, SequenceNode) else shown
        message = f"{entry.name}: expected a mapping, found {shown}"
        hint = f"write `{entry.name}:` and below it, indented, `key: value` lines"
        at = entry.key_span.place
        block.findings.append(stop("wrong-type", message, hint, key=entry.name, at=at))
        return block
    block.values = _Reader(block).mapping(entry.value, (entry.name,))
    return block


def settings_of(block: RawBlock, source: Source) -> RunnerSettings | None:
    """Validate the block; None when it is wrong, and then block.findings holds every reason."""
    values = dict(block.values)
    if block.name == "runpod":
        values.setdefault("cloud", "runpod")
    try:
        return RunnerSettings.model_validate(values)
    except ValidationError as error:
        wrong = error.errors(include_url=False)[:MAX_REASONS]
        block.findings += [_finding(each, block.name, source) for each in wrong]
        return None


def duplicates(source: Source, node: Node, path: Path, *, level: str) -> Iterator[Finding]:
    """A finding for each key that stands twice in one mapping, at any depth below `node`."""
    children = [
        ((*path, n), item.value) for n, item in enumerate(source.items(node)) if not item.alias
    ]
    seen: dict[str, Entry] = {}
    for entry in source.entries(node):
        first = seen.setdefault(entry.name, entry)
        if first is not entry and entry.name != "<<":
            yield _duplicate(first, entry, (*path, entry.name), level)
        if not entry.alias:
            children.append(((*path, entry.name), entry.value))
    for child_path, child in children:
        yield from duplicates(source, child, child_path, level=level)


def dotted(path: Path) -> str:
    """`("runner", "resume", "ladder", 2)` as `runner.resume.ladder[2]`."""
    shown = ""
    for step in path:
        shown += f"[{step}]" if isinstance(step, int) else f".{step}"
    return shown.lstrip(".")


class _Reader:
    """Nodes to plain values, scalars as written."""

    def __init__(self, block: RawBlock) -> None:
        self.block = block

    def mapping(self, node: MappingNode, path: Path) -> dict[str, object]:
        merged: dict[str, object] = {}
        own: dict[str, object] = {}
        for key, value in node.value:
            if not isinstance(key, ScalarNode):
                self._stop("key", path, key, "a list or mapping as a key", "use text as the key")
            elif key.tag == YAML_TAG + "merge":
                merged = {**self._merge(value, path), **merged}
            elif path[1:] == ("env",) or not _is_null(value):
                own[key.value] = self.value(value, (*path, key.value))
        return {**merged, **own}

    def value(self, node: Node, path: Path) -> object:
        if node.tag not in _KNOWN:
            tag = node.tag.removeprefix(YAML_TAG)
            self._stop("tag", path, node, f"the tag {tag} is not allowed", "write a plain value")
        if isinstance(node, MappingNode):
            return self.mapping(node, path)
        if isinstance(node, SequenceNode):
            return [self.value(child, (*path, n)) for n, child in enumerate(node.value)]
        if _is_null(node):
            return None
        if node.tag == YAML_TAG + "bool":
            return self._truth(node, path)
        return str(node.value)

    def _truth(self, node: Node, path: Path) -> object:
        written = str(node.value)
        if written.lower() in ("true", "false"):
            return written.lower() == "true"
        if path[1:2] != ("env",):
            return written.lower() in ("yes", "on")
        message = f"{dotted(path)}: YAML 1.1 reads {written} as a truth value; it is kept as text"
        hint = "put it in quotes"
        self.block.findings.append(
            warn("yaml-1.1", message, hint, key=dotted(path), at=_place(node))
        )
        return written

    def _merge(self, node: Node, path: Path) -> dict[str, object]:
        parts = node.value if isinstance(node, SequenceNode) else [node]
        merged: dict[str, object] = {}
        for part in parts:
            if isinstance(part, MappingNode):
                merged = {**self.mapping(part, path), **merged}
            else:
                self._stop("merge", path, part, "<< of no mapping", "write it out")
        return merged

    def _stop(self, code: str, path: Path, node: Node, message: str, hint: str) -> None:
        key = dotted(path)
        self.block.findings.append(stop(code, f"{key}: {message}", hint, key=key, at=_place(node)))


def _place(node: Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _is_null(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.tag == YAML_TAG + "null"


def _duplicate(first: Entry, second: Entry, path: Path, level: str) -> Finding:
    key = dotted(path)
    lines = f"on line {first.key_span.line} and again on line {second.key_span.line}"
    at = second.key_span.place
    if level == "stop":
        message = f"{key} stands {lines}; YAML would silently keep the last"
        return stop("duplicate-key", message, "remove one of the two", key=key, at=at)
    message = f"{key} stands {lines}; the last one holds"
    return warn("duplicate-key", message, "remove one of the two", key=key, at=at)


def _finding(error: ErrorDetails, name: str, source: Source) -> Finding:
    path: Path = tuple(step for step in error["loc"] if step != "[key]")
    if path[-1:] == (0,) and source.at((name, *path)) is None:
        path = path[:-1]  # one word that stands for a list of one
    key, at = dotted((name, *path)), source.place((name, *path))
    match error["type"]:
        case "extra_forbidden":
            return stop("unknown-key", f"{key}: unknown key", _near(path), key=key, at=at)
        case "model_type" | "dict_type":
            sentence = f"expected a mapping, found {found(error['input'])}"
            return stop(
                "wrong-type", f"{key}: {sentence}", "indent its keys below it", key=key, at=at
            )
        case _:
            return stop("wrong-value", f"{key}: {error['msg']}", _advice(path), key=key, at=at)


def _near(path: Path) -> str:
    parent, key = path[:-1], str(path[-1])
    known = _MODELS.get(parent, RunnerSettings).model_fields
    near = get_close_matches(key.lower(), known, n=1)
    if near:
        return f"did you mean {near[0]}?"
    for place, model in _MODELS.items():
        if key in model.model_fields:
            return f"it belongs under {dotted(('runner', *place))}"
    return "known here: " + ", ".join(known)


def _advice(path: Path) -> str:
    default = None
    model = _MODELS.get(path[:-1])
    if model is not None and path[-1] in model.model_fields:
        default = model.model_fields[str(path[-1])].get_default(call_default_factory=True)
    if default is None or isinstance(default, BaseModel):
        return "correct the value or remove the key"
    return f"correct it, or remove the key for the default ({_shown(default)})"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, int | float) else str(value)
