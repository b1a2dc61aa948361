"""PyYAML's complaints in a user's words, with line and column."""

from __future__ import annotations

import re
from typing import Any  # PyYAML's marks are untyped in its stubs

import yaml

BREAKS = re.compile(r"\r\n|[\n\r\x85\u2028\u2029]")  # the line breaks of YAML 1.1

# (part of PyYAML's problem or context, what it means, what to do); the first that fits is taken
_PLAIN_WORDS = (
    ("found character '\\t'", "a tab where YAML wants spaces", "indent with spaces"),
    (
        "mapping values are not allowed here",
        "a `key: value` where none can stand (YAML: {problem})",
        "give the lines of one mapping the same indent, and quote text that holds ': '",
    ),
    (
        "unexpected end of stream",
        "a quote that is never closed",
        "close it, or quote the whole value with the other kind of quote",
    ),
    (
        "expected a single document",
        "a second YAML document (---)",
        "keep one document; put the others into task files of their own",
    ),
    (
        "could not determine a constructor",
        "a tag that is not allowed ({problem})",
        "write a plain value without a tag",
    ),
    ("unhashable key", "a list or mapping as a key", "use text as the key"),
    ("could not find expected ':'", "a line without a ':' ({problem})", "write `key: value`"),
    ("undefined alias", "{problem}", "define it with & above, or quote text that starts with *"),
    (
        "expected <block end>",
        "a line that fits no mapping or list above it ({problem})",
        "check its indent",
    ),
    ("while parsing a flow", "a [ or {{ that is not closed properly ({problem})", "close it"),
    (
        "cannot start any token",
        "{problem}",
        "quote values that start with a special character such as @, ` or %",
    ),
)


class SourceError(Exception):
    """Text that is not one acceptable YAML document; line and column count from 1, 0 if unknown."""

    def __init__(self, message: str, hint: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.message, self.hint, self.line, self.column = message, hint, line, column


def explain(error: Exception, text: str) -> SourceError:
    """Any error that PyYAML lets out for `text`, at the place that the user has to change."""
    match error:
        case yaml.MarkedYAMLError():
            return _explain_marked(error, text)
        case yaml.reader.ReaderError():
            message = f"the character U+{ord(text[error.position]):04X} is not allowed in YAML"
            return SourceError(message, "remove it", *place_of(text, error.position))
        case _:  # those of chr(), int(), datetime() and the like come through without a place
            return SourceError(f"a value that can't be read ({error})", "put it in quotes")


def refused(message: str, hint: str, mark: Any) -> SourceError:
    """A SourceError at one of PyYAML's marks, which count from 0."""
    return SourceError(message, hint, mark.line + 1, mark.column + 1)


def place_of(text: str, index: int) -> tuple[int, int]:
    """Line and column, from 1, of a character offset."""
    lines = BREAKS.split(text[:index])
    return len(lines), len(lines[-1]) + 1


def _explain_marked(error: yaml.MarkedYAMLError, text: str) -> SourceError:
    problem = " ".join((error.problem or "a syntax error").split())
    context = error.context or ""
    mark = error.problem_mark or error.context_mark
    message, hint = problem, "correct the YAML at this place"
    for sign, says, advice in _PLAIN_WORDS:
        if sign in problem or sign in context:
            message, hint = says.format(problem=problem), advice
            break
    begins = "end of stream" in problem or "could not find expected ':'" in problem
    if begins and error.context_mark:
        mark = error.context_mark  # where the quote or key begins, not where it had to end
    if mark is None:
        return SourceError(message, hint)
    if "{{" in _line(text, mark.index):
        message, hint = f"{message}; {{{{ }}}} is not expanded here", "write the value itself"
    return refused(message, hint, mark)


def _line(text: str, index: int) -> str:
    return BREAKS.split(text[:index])[-1] + BREAKS.split(text[index:], maxsplit=1)[0]
