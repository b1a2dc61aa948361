"""Characters that look like others: from word processors, chats and web pages."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from runner.block import dotted
from runner.finding import Finding, warn
from runner.yaml_source import Path, Source

INVISIBLE = re.compile("[\u00a0\u00ad\u2000-\u200f\u2028-\u202f\u205f\u2060\u3000\ufeff]")
QUOTES = "“”„‟‘’‚‛«»"
DASHES = re.compile("(?<=[eE])[\u2010-\u2015\u2212](?=\\d)|^[\u2010-\u2015\u2212](?=[\\d.])")
# Text for models may hold anything.
FREE_TEXT = {
    *("chat_template_jinja", "system_prompt", "system_format", "format", "no_input_format"),
    *("default_system_message", "special_tokens", "tokens", "added_tokens_overrides", "eot_tokens"),
    *("wandb_notes", "env", "entry", "role_boundaries", "chat_template_kwargs"),
}
MOST = 20


def character_findings(source: Source) -> Iterator[Finding]:
    """Warnings for invisible characters and typographic quotes and dashes in keys and values."""
    for count, found in enumerate(_walk(source, source.root, ())):
        if count < MOST:
            yield found


def line_findings(text: str, line: int) -> Iterator[Finding]:
    """The same for one line (from 1) of a text that YAML can't read, comments left out."""
    lines = text.splitlines()
    if not 0 < line <= len(lines):
        return
    shown = lines[line - 1].partition(" #")[0]
    for column, character in enumerate(shown, 1):
        if INVISIBLE.match(character) or character in QUOTES:
            yield _finding(character, "", (line, column))


def _walk(source: Source, node: Node | None, path: Path) -> Iterator[Finding]:
    if isinstance(node, MappingNode):
        for entry in source.entries(node):
            here = (*path, entry.name)
            yield from _scalar(source, entry.key, here, entry.key_span.place)
            if entry.name not in FREE_TEXT and not entry.alias:
                yield from _value(source, entry.value, here, entry.span.place)
    elif isinstance(node, SequenceNode):
        for number, item in enumerate(source.items(node)):
            if not item.alias:
                yield from _value(source, item.value, (*path, number), item.span.place)


def _value(source: Source, node: Node, path: Path, at: tuple[int, int]) -> Iterator[Finding]:
    if isinstance(node, ScalarNode):
        if node.style not in ("|", ">"):
            yield from _scalar(source, node, path, at)
    else:
        yield from _walk(source, node, path)


def _scalar(source: Source, node: ScalarNode, path: Path, at: tuple[int, int]) -> Iterator[Finding]:
    text = str(node.value)
    match = INVISIBLE.search(text) or DASHES.search(text)
    if match:
        yield _finding(match.group(), dotted(path), at)
    elif text[:1] in QUOTES and text and node.style is None:
        yield _finding(text[0], dotted(path), at)


def _finding(character: str, key: str, at: tuple[int, int]) -> Finding:
    name = unicodedata.name(character, "a control character").lower()
    message = (
        f"{key}: there is a {name} (U+{ord(character):04X})"
        if key
        else (f"there is a {name} (U+{ord(character):04X}) on this line")
    )
    if character in QUOTES:
        message += ", which is no quote to YAML"
        return warn("odd-character", message, "use \" or '", key=key, at=at)
    hint = "write a plain -" if unicodedata.category(character) in ("Pd", "Sm") else "write it anew"
    return warn("odd-character", message, hint, key=key, at=at)
