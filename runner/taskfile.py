"""Reading a task file: one YAML that is axolotl's but for the `runner:` block.

Whatever is wrong with the file comes out as one ConfigError whose lines read
`name:line:column: what — what to do`; nothing else is raised, whatever the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType

from yaml.nodes import MappingNode

from runner.axolotl_keys import (
    apply_watchdog,
    misplaced_keys,
    misread_words,
    nothing_to_merge,
    odd_keys,
    refused_keys,
)
from runner.block import NAMES, RawBlock, duplicates, read_block, settings_of
from runner.finding import Finding, TaskFileError, stop
from runner.settings import RunnerSettings
from runner.yaml_errors import SourceError
from runner.yaml_source import YAML_TAG, Entry, Source, compose, construct

__all__ = ["Finding", "TaskFile", "TaskFileError", "decoded", "parse_task_file", "read_task_file"]

MAX_BYTES = 1_000_000  # axolotl's own examples have at most 10 kB; PyYAML needs 10 s for 1 MB


@dataclass(frozen=True)
class TaskFile:
    """A task file that was read and found usable.

    `text` is the file without a byte order mark. `axolotl` holds every top-level key but the
    runner block, values as YAML gives them. `spans` gives the first and last line (from 1) of
    each top-level key; of a key that stands twice, the one that holds.
    """

    name: str
    text: str = field(repr=False)
    settings: RunnerSettings
    axolotl: Mapping[str, object]
    spans: Mapping[str, tuple[int, int]]
    warnings: tuple[Finding, ...]
    source: Source = field(repr=False, compare=False)

    def place(self, *path: str | int) -> tuple[int, int]:
        """Line and column of a value, e.g. place("datasets", 0, "path"); (1, 1) if absent."""
        return self.source.place(path)

    def setting_place(self, key: str) -> tuple[int, int]:
        """Line and column of a setting of our block, else of the block; (1, 1) without one."""
        places = [self.place(name, *rest) for rest in ((key,), ()) for name in NAMES]
        return next((place for place in places if place != (1, 1)), (1, 1))


def read_task_file(path: Path, *, root: Path | None = None) -> TaskFile:
    """Read the task file at `path`; with `root`, relative paths and the name count from there."""
    full = path if root is None else root / path
    name = _name(path, full, root)
    try:
        if full.is_dir():
            raise _whole(name, "folder", "this is a folder", "name the YAML file in it")
        if not full.is_file():
            raise _whole(name, "missing", _absence(full), _near_names(full))
        size = full.stat().st_size
        data = full.open("rb").read(MAX_BYTES + 1) if size <= MAX_BYTES else b""
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise _whole(name, "unreadable", f"it can't be read: {reason}", "check it") from None
    if size > MAX_BYTES or len(data) > MAX_BYTES:
        raise _too_big(name, max(size, len(data)))
    return parse_task_file(decoded(data, name), name)


def parse_task_file(text: str, name: str) -> TaskFile:
    """Parse the text of a task file; `name` is what messages call it."""
    text = text.removeprefix("\ufeff")
    if len(text) > MAX_BYTES:
        raise _too_big(name, len(text))
    try:
        source = compose(text)
        entries = _top_level(source, name)
        data = construct(source)
    except SourceError as error:
        at = (error.line, error.column)
        raise TaskFileError(name, [stop("yaml", error.message, error.hint, at=at)]) from None
    axolotl = {str(key): value for key, value in data.items()} if isinstance(data, dict) else {}
    settings, findings = _checked(source, entries, axolotl)
    stops = [finding for finding in findings if finding.level == "stop"]
    if stops or settings is None:
        raise TaskFileError(name, sorted(stops, key=lambda each: (each.line, each.column)))
    return TaskFile(
        name=name,
        text=text,
        settings=settings,
        axolotl=MappingProxyType({k: v for k, v in axolotl.items() if k not in NAMES}),
        spans=MappingProxyType({entry.name: _lines(source, entry) for entry in entries}),
        warnings=tuple(findings),
        source=source,
    )


def _top_level(source: Source, name: str) -> list[Entry]:
    root = source.root
    if root is None or root.tag == YAML_TAG + "null":
        raise _whole(name, "empty", "the file holds no settings", "write an axolotl configuration")
    if not isinstance(root, MappingNode) or root.tag != YAML_TAG + "map":
        raise SourceError(
            "the file is not a mapping at its top level", "write `key: value` lines", 1, 1
        )
    return list(source.entries(root))


def _checked(
    source: Source, entries: list[Entry], axolotl: Mapping[str, object]
) -> tuple[RunnerSettings | None, list[Finding]]:
    blocks = [entry for entry in entries if entry.name in NAMES]
    wrong = list(_block_faults(blocks, axolotl))
    block = read_block(source, blocks[0]) if blocks else RawBlock()
    apply_watchdog(block, axolotl, source)
    settings = settings_of(block, source)
    findings = [*wrong, *block.findings, *odd_keys(source), *refused_keys(axolotl, source)]
    findings += [*misread_words(axolotl, source), *misplaced_keys(axolotl, source)]
    findings += [*nothing_to_merge(axolotl, settings, source)]
    findings += _axolotl_duplicates(source, entries)
    return settings, findings


def _block_faults(blocks: list[Entry], axolotl: Mapping[str, object]) -> list[Finding]:
    if not blocks:
        merged = [name for name in NAMES if name in axolotl]
        hint = "write the block at the top level"
        return [stop("merged", f"{name}: comes in through <<", hint, key=name) for name in merged]
    first, *rest = blocks
    aliases = [
        stop(
            "alias",
            f"{each.name}: an alias would leave its settings in the file that axolotl publishes",
            "write the block itself",
            key=each.name,
            at=each.span.place,
        )
        for each in blocks
        if each.alias
    ]
    return aliases + [
        stop(
            "two-blocks",
            f"{second.name} on line {second.key_span.line} comes after {first.name} on line "
            f"{first.key_span.line}; a file has one block for the runner",
            "keep one, named runner",
            key=second.name,
            at=second.key_span.place,
        )
        for second in rest
    ]


def _axolotl_duplicates(source: Source, entries: list[Entry]) -> list[Finding]:
    # the runner blocks' own duplicates are refused elsewhere
    found = duplicates(source, source.root, (), level="warn") if source.root else ()
    return [each for each in found if each.key.split(".")[0].split("[")[0] not in NAMES]


def _lines(source: Source, entry: Entry) -> tuple[int, int]:
    return entry.key_span.line, source.line_of(max(entry.end - 1, entry.key_span.start))


def _whole(name: str, code: str, message: str, hint: str) -> TaskFileError:
    return TaskFileError(name, [stop(code, message, hint)])


def _too_big(name: str, size: int) -> TaskFileError:
    message = f"{size / 1e6:.1f} MB is too big for a task file (at most {MAX_BYTES / 1e6:.0f} MB)"
    return _whole(name, "too-big", message, "is this a data set? name it under datasets instead")


def _name(path: Path, full: Path, root: Path | None) -> str:
    if root is not None and full.is_relative_to(root):
        return full.relative_to(root).as_posix()
    return path.as_posix()


def _absence(full: Path) -> str:
    if full.exists():
        return "this is not a regular file"
    return "there is no such file" if full.parent.is_dir() else "there is no such folder"


def _near_names(full: Path) -> str:
    parent = full.parent
    if not parent.is_dir():
        return "check the path"
    others = sorted(each.name for each in parent.iterdir() if each.is_file())
    yamls = [name for name in others if name.endswith((".yml", ".yaml"))]
    near = get_close_matches(full.name, others, n=3) or yamls[:3]
    return f"did you mean {' or '.join(near)}?" if near else "check the path"


def decoded(data: bytes, name: str) -> str:
    """The bytes of a task file as text; TaskFileError with the place of what is not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line_start = data.rfind(b"\n", 0, error.start) + 1
        at = (data.count(b"\n", 0, error.start) + 1, error.start - line_start + 1)
        message = f"byte {error.start} (0x{data[error.start]:02x}) is not UTF-8"
        found = stop("encoding", message, "save the file as UTF-8", at=at)
        raise TaskFileError(name, [found]) from None
