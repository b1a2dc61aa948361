"""Changes made in the text itself, by spans, so that every other byte stays as it was."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import yaml
from yaml.nodes import CollectionNode, MappingNode, ScalarNode, SequenceNode

from runner.changes import Append, Change, Remove, Set
from runner.yaml_errors import BREAKS
from runner.yaml_source import Entry, Item, Path, Source

_PLAIN = re.compile(r"[A-Za-z_/.][\w./-]*", re.ASCII)
_COMMENTED_OUT = re.compile(r"#\s*(- |[\w\"'-]+\s*:(\s|$))")


@dataclass(frozen=True)
class _Edit:
    start: int
    end: int
    text: str = ""


def splice(
    source: Source, wanted: dict[str, object], changes: Sequence[Change], note: str
) -> str | None:
    """The text with the changes made; None for a file that has no spans of its own for them.

    `wanted` is what the result must mean. The caller checks it: an anchor or a merge may carry a
    change to where it was not meant. `note` is the comment above the keys that are added.
    """
    root = source.root
    if not isinstance(root, MappingNode) or root.flow_style or not root.value:
        return None
    entries = list(source.entries(root))
    names = {entry.name for entry in entries}
    edits: list[_Edit] = []
    added: dict[str, object] = {}
    for change in changes:
        match change:
            case Remove(key=key, comments=comments):
                edits += _removals(source, entries, key, comments)
            case Append(key=key, value=value) if key in names:
                same_key = [entry for entry in entries if entry.name == key]
                edits += [_appended(source, entry, value, wanted) for entry in same_key]
            case Append(key=key) | Set(path=(str() as key,)) if key not in names:
                added[key] = wanted[key]
            case Set(path=(*parent, str() as key), value=value) if (
                source.at((*parent, key)) is None
            ):
                edits += _new_entry(source, (*parent,), key, value)
            case Set(path=path, value=value):
                edits += _replacements(source, path, value)
    if added:
        edits.append(_insertion(source.text, entries, edits, added, note))
    return _apply(source.text, edits)


def _new_entry(source: Source, parent: Path, key: str, value: object) -> list[_Edit]:
    """A key more in a mapping within the file, before its first one."""
    item = source.at(parent)
    entries = list(source.entries(item.value)) if item is not None else []
    if item is None or item.alias or not isinstance(item.value, MappingNode) or not entries:
        return []  # it comes in through a merge or an alias; the check of the result decides then
    at, column = entries[0].key_span.start, entries[0].key_span.column
    between = ", " if item.value.flow_style else _break(source.text) + " " * (column - 1)
    return [_Edit(at, at, f"{key}: {in_line(value)}{between}")]


def _replacements(source: Source, path: Path, value: object) -> list[_Edit]:
    """Edits for one path; of a top-level key that stands twice, both places."""
    items: list[Item | None] = [source.at(path)]
    if len(path) == 1:
        items = [entry for entry in source.entries(source.root) if entry.name == path[0]]
    # None: the value comes in through a merge; the check of the result decides then
    return [_replace(source.text, item, value) for item in items if item is not None]


def _replace(text: str, item: Item, value: object) -> _Edit:
    start, end, written = item.span.start, item.span.end, in_line(value)
    block = isinstance(item.value, CollectionNode) and not item.value.flow_style
    if isinstance(item, Entry) and block and not item.alias:
        # a list may stand at its key's own column, where no single value can
        return _Edit(text.index(":", item.key_span.end) + 1, end, " " + written)
    if start == end:  # nothing after the colon
        return _Edit(start, end, " " + written)
    if isinstance(item.value, ScalarNode) and item.value.style in ("|", ">") and not item.alias:
        return _Edit(start, end, written + _break(text))
    return _Edit(start, end, written)


def _appended(source: Source, entry: Entry, value: str, wanted: dict[str, object]) -> _Edit:
    text, items = source.text, list(source.items(entry.value))
    if not isinstance(entry.value, SequenceNode) or entry.alias:
        return _replace(text, entry, wanted[entry.name])
    if not items:
        bracket = text.index("[", entry.span.start)
        return _Edit(bracket + 1, bracket + 1, in_line(value))
    end = items[-1].span.end
    if entry.value.flow_style:
        return _Edit(end, end, ", " + in_line(value))
    dash = text.rfind("-", entry.span.start, items[0].span.start)
    indent = text[_line_start(text, dash) : dash]
    at = _behind_line(text, end)
    lead = "" if _starts_line(text, at) else _break(text)
    return _Edit(at, at, f"{lead}{indent}- {in_line(value)}{_break(text)}")


def _removals(source: Source, entries: list[Entry], key: str, comments: bool) -> list[_Edit]:
    edits = []
    for index, entry in enumerate(entries):
        if entry.name == key:
            floor = entries[index - 1].end if index else 0
            start = _line_start(source.text, entry.key_span.start)
            end = _behind_line(source.text, entry.end)
            if comments:
                column = entry.key_span.column - 1
                start = _comments_above(source.text, start, floor, column)
                end = _comments_below(source.text, end, column)
            edits.append(_Edit(start, end))
    return edits


def _insertion(
    text: str, entries: list[Entry], edits: list[_Edit], added: dict[str, object], note: str
) -> _Edit:
    """One edit that adds keys above the first key that stays, so that no value can swallow them."""
    gone = [edit for edit in edits if not edit.text]
    indent = " " * (entries[0].key_span.column - 1)
    starts = [_line_start(text, entry.key_span.start) for entry in entries]
    stays = [n for n, at in enumerate(starts) if not any(e.start <= at < e.end for e in gone)]
    if stays:
        floor = entries[stays[0] - 1].end if stays[0] else 0
        at = _comments_above(text, starts[stays[0]], floor, len(indent))
    else:
        at = _behind_line(text, entries[-1].end)
    at = max([at, *(edit.end for edit in gone if edit.start <= at < edit.end)])
    lines = [f"# {note}", *(f"{key}: {in_line(value)}" for key, value in added.items())]
    lead = "" if _starts_line(text, at) else _break(text)
    return _Edit(at, at, lead + "".join(f"{indent}{line}{_break(text)}" for line in lines))


def _comments_above(text: str, start: int, floor: int, column: int) -> int:
    """Go up over comment lines at the key's own column; a blank line or a value ends it."""
    while start > floor:
        behind = start - 2 if text[start - 2 : start] == "\r\n" else start - 1
        above = _line_start(text, behind)
        line = text[above:start]
        if above < floor or line[:column].strip() or not line[column:].startswith("#"):
            return start
        start = above
    return start


def _comments_below(text: str, end: int, column: int) -> int:
    """Go down over the comments that belong to the block that ends at `end`.

    Those are: all up to the last one that is indented deeper than the block's key; then what
    follows at once, if it is commented-out settings or a blank line parts it from the next key.
    """
    reach = at = end
    lines: list[tuple[str, int]] = []
    while at < len(text):
        after = _line_end(text, at)
        line = text[at:after].strip()
        if line and not line.startswith("#"):
            break
        lines.append((line, after))
        if line and len(text[at:after]) - len(text[at:after].lstrip()) > column:
            reach, lines = after, []
        at = after
    group = list(takewhile(lambda each: each[0], lines))
    if len(group) == len(lines) and at < len(text):  # directly above the next key
        group = list(takewhile(lambda each: _COMMENTED_OUT.match(each[0]), group))
    return group[-1][1] if group else reach


def _apply(text: str, edits: list[_Edit]) -> str | None:
    parts, at = [], 0
    for edit in sorted(set(edits), key=lambda each: (each.start, each.end)):
        if edit.start < at:
            if edit.end <= at and not edit.text:
                continue  # comments that two removed keys share
            return None
        parts += [text[at : edit.start], edit.text]
        at = edit.end
    return "".join(parts) + text[at:]


def _line_start(text: str, index: int) -> int:
    return max((text.rfind(each, 0, index) + 1 for each in "\n\r\x85\u2028\u2029"), default=0)


def _line_end(text: str, index: int) -> int:
    """Behind the line break of the line that holds `index`."""
    found = BREAKS.search(text, index)
    return found.end() if found else len(text)


def _behind_line(text: str, end: int) -> int:
    """Behind the line on which a value ends; a block scalar ends behind its own last line."""
    return end if end and _starts_line(text, end) else _line_end(text, end)


def _starts_line(text: str, index: int) -> bool:
    return index == 0 or bool(BREAKS.fullmatch(text[index - 1]))


def _break(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def in_line(value: object) -> str:
    """A value as YAML on one line."""
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and yaml.safe_load(value) == value
        return value if plain else _flow(value, style='"')
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return "[" + ", ".join(in_line(item) for item in value) + "]"
    return _flow(value)


def _flow(value: object, style: str | None = None) -> str:
    dumped = yaml.safe_dump(value, default_flow_style=True, default_style=style, width=math.inf)
    return dumped.removesuffix("\n").removesuffix("\n...")
