"""YAML text as a tree that knows where each value stands, built on PyYAML's own nodes.

PyYAML's nodes lack three things that a safe reader of other people's files needs: limits (depth,
and how far aliases blow the document up), the place of an alias (its node is the anchor's), and the
true end of a block collection (its end mark lies behind the comments that follow it).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any  # PyYAML's marks and events are untyped in its stubs

import yaml
from yaml.composer import Composer
from yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode, SequenceNode

from runner.yaml_errors import BREAKS, explain, refused

Path = tuple[str | int, ...]

YAML_TAG = "tag:yaml.org,2002:"
MAX_DEPTH = 40  # axolotl's own files nest 5 deep
MAX_NODES = 200_000  # with all aliases written out; about what fits into 1 MB without any
MAX_DIGITS = 400  # PyYAML reads 1:1:1:... as a number of base 60, in quadratic time

# what PyYAML's constructors let out of int(), datetime(), tables and regular expressions
_CONSTRUCTOR_ERRORS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
_NUMBERS = (YAML_TAG + "int", YAML_TAG + "float")


@dataclass(frozen=True)
class Span:
    """Where a value stands: character offsets [start, end), line and column of its start from 1."""

    start: int
    end: int
    line: int
    column: int

    @property
    def place(self) -> tuple[int, int]:
        """Line and column."""
        return self.line, self.column


@dataclass(frozen=True)
class Item:
    """A value in a list or mapping; `alias` is true when it is written as `*name`."""

    value: Node
    span: Span
    alias: bool


@dataclass(frozen=True)
class Entry(Item):
    """A `key: value` of a mapping."""

    key: ScalarNode
    key_span: Span

    @property
    def name(self) -> str:
        """The key as it is written; YAML 1.1 would read `on` as true."""
        return str(self.key.value)

    @property
    def end(self) -> int:
        """Offset behind the last character of the entry, comments not counted."""
        return max(self.key_span.end, self.span.end)


@dataclass
class Source:
    """A composed document; `root` is None when the text holds nothing but comments."""

    text: str
    root: Node | None
    aliases: dict[tuple[int, int], Span] = field(default_factory=dict)

    def entries(self, node: Node | None) -> Iterator[Entry]:
        """The entries of a mapping in the order of the file, merge keys (`<<`) included."""
        if isinstance(node, MappingNode):
            for key, value in node.value:
                if isinstance(key, ScalarNode):
                    yield self._entry(node, key, value)

    def items(self, node: Node | None) -> Iterator[Item]:
        """The items of a list."""
        if isinstance(node, SequenceNode):
            for index in range(len(node.value)):
                yield self._item(node, index)

    def child(self, node: Node | None, step: str | int) -> Item | None:
        """The item at that index, or the last entry of that name; None when there is none."""
        if isinstance(node, SequenceNode) and isinstance(step, int) and step < len(node.value):
            return self._item(node, step)
        if isinstance(node, MappingNode):
            for key, value in reversed(node.value):
                if isinstance(key, ScalarNode) and key.value == step:
                    return self._entry(node, key, value)
        return None

    def at(self, path: Path) -> Item | None:
        """What stands at `path`; None when it is not written there."""
        item, node = None, self.root
        for step in path:
            item = self.child(node, step)
            if item is None:
                return None
            node = item.value
        return item

    def place(self, path: Path) -> tuple[int, int]:
        """Line and column of what stands at `path`, of its key if any, else of its parent."""
        for length in range(len(path), 0, -1):
            item = self.at(path[:length])
            if item is not None:
                return item.key_span.place if isinstance(item, Entry) else item.span.place
        return 1, 1

    def line_of(self, index: int) -> int:
        """The line, from 1, of a character offset."""
        return bisect_right(self._line_starts, index) + 1

    @cached_property
    def _line_starts(self) -> list[int]:
        return [each.end() for each in BREAKS.finditer(self.text)]

    def _entry(self, node: MappingNode, key: ScalarNode, value: Node) -> Entry:
        return Entry(
            value=value,
            span=self._span(node, key, value),
            alias=_slot(node, key) in self.aliases,
            key=key,
            key_span=self._span(node, None, key),
        )

    def _item(self, node: SequenceNode, index: int) -> Item:
        value = node.value[index]
        return Item(value, self._span(node, index, value), _slot(node, index) in self.aliases)

    def _span(self, parent: Node, index: Node | int | None, node: Node) -> Span:
        alias = self.aliases.get(_slot(parent, index))
        if alias is not None:
            return alias
        mark = node.start_mark
        return Span(mark.index, self._end(node), mark.line + 1, mark.column + 1)

    def _end(self, node: Node) -> int:
        if not isinstance(node, CollectionNode) or node.flow_style or not node.value:
            return int(node.end_mark.index)
        if isinstance(node, MappingNode):
            key, value = node.value[-1]
            return max(self._span(node, None, key).end, self._span(node, key, value).end)
        return self._span(node, len(node.value) - 1, node.value[-1]).end


def compose(text: str) -> Source:
    """Compose the one document in `text`; SourceError says in plain words why it can't be."""
    try:
        composer = _Composer(text)
        return Source(text, composer.get_single_node(), composer.aliases)
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise explain(error, text) from None


def construct(source: Source) -> object:
    """The plain value of a document, as yaml.safe_load would give it to axolotl."""
    if source.root is None:
        return None
    try:
        # a copy, for PyYAML writes merged keys into the nodes that it constructs from
        return yaml.SafeLoader("").construct_document(deepcopy(source.root))
    except (
        yaml.YAMLError,
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:
        raise explain(error, source.text) from None


class _Composer(yaml.SafeLoader):
    """SafeLoader that counts what it composes and notes where aliases stand."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.aliases: dict[tuple[int, int], Span] = {}
        self._depth = 0
        self._total = 0
        self._sizes: dict[str, int] = {}

    def compose_node(self, parent: Node | None, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        mark = event.start_mark
        if isinstance(event, yaml.AliasEvent):
            return self._compose_alias(parent, index, event)
        if self._depth >= MAX_DEPTH:
            raise refused(f"nested deeper than {MAX_DEPTH} levels", "flatten it", mark)
        before = self._total
        self._count(1, mark)
        self._depth += 1
        node: Any = Composer.compose_node(self, parent, index)
        self._depth -= 1
        if event.anchor is not None:
            self._sizes[event.anchor] = self._total - before
        if node.tag in _NUMBERS and len(node.value) > MAX_DIGITS:
            raise refused(f"a number of more than {MAX_DIGITS} digits", "quote it", mark)
        return node

    def _compose_alias(self, parent: Node | None, index: Any, event: Any) -> Any:
        mark, end = event.start_mark, event.end_mark
        if event.anchor in self.anchors and event.anchor not in self._sizes:
            raise refused(f"*{event.anchor} stands inside its own anchor", "write it out", mark)
        self._count(self._sizes.get(event.anchor, 0), mark)
        node = Composer.compose_node(self, parent, index)
        if index is not None:
            self.aliases[_slot(parent, index)] = Span(
                mark.index, end.index, mark.line + 1, mark.column + 1
            )
        return node

    def _count(self, nodes: int, mark: Any) -> None:
        self._total += nodes
        if self._total > MAX_NODES:
            message = f"more than {MAX_NODES} values, with aliases written out"
            raise refused(message, "use fewer aliases", mark)


def _slot(parent: Node | None, index: Node | int | None) -> tuple[int, int]:
    return id(parent), index if isinstance(index, int) else id(index)
