"""Pieces of Markdown that text from outside can not leave."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence


def facts_table(facts: Mapping[str, str]) -> str:
    """Names and values as two columns; what is empty is left out. The values are Markdown."""
    return table(("", ""), [(f"**{name}**", value) for name, value in facts.items() if value])


def plain_facts_table(facts: Mapping[str, str]) -> str:
    """The same of plain text."""
    return facts_table({name: safe(value) for name, value in facts.items()})


def table(columns: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows of cells in Markdown below their titles."""
    head = [*columns]
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def safe(text: str) -> str:
    """One line that opens no cell, no tag and no code."""
    flat = " ".join(str(text).split())
    return re.sub(r"([|<>`\\])", r"\\\1", flat)


def code(text: str) -> str:
    """One line of code, for a sentence or a cell."""
    flat = " ".join(str(text).split()).replace("`", "'").replace("|", "\\|")
    return f"`{flat}`"


def fenced(text: str, language: str) -> str:
    """A code block that nothing in the text can close."""
    runs = re.findall(r"`{3,}", text)
    fence = "`" * (max((len(run) for run in runs), default=2) + 1)
    return f"{fence}{language}\n{text}\n{fence}"
