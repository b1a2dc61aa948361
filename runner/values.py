"""Readers of single values for the settings: plain value in, typed value out, or a sentence.

Each reader raises ValueError with "expected ..., found ..."; the caller adds key and place.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from difflib import get_close_matches

from pydantic_core import PydanticCustomError

_NUMBER = re.compile(r"[-+]?(\d[\d_]*\.?\d*|\.\d+)([eE][-+]?\d+)?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CLASS = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")


def refuse(expected: str, value: object) -> PydanticCustomError:
    """The error for a value that is not what was expected."""
    sentence = f"expected {expected}, found {found(value)}"
    return PydanticCustomError("refused", "{sentence}", {"sentence": sentence})


def found(value: object) -> str:
    """A value in words, short, as a user would write it."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case str():
            if _NUMBER.fullmatch(value):
                return value[:40]
            return repr(value if len(value) <= 40 else value[:37] + "...")
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list" if value else "an empty list"
        case _:
            return str(value)[:40]


def number(*, above: float | None = None, also: float | None = None) -> Callable[[object], float]:
    """A reader of finite numbers, also from text such as `1e1`, which YAML 1.1 leaves as text;
    `also` is one more value that passes.
    """
    expected = "a number" if above is None else f"a number above {above:g}"
    expected += "" if also is None else f" (or {also:g})"

    def read(value: object) -> float:
        result = plain_number(value)
        if result is None or (above is not None and result <= above and result != also):
            raise refuse(expected, value)
        return result

    return read


def whole(*, least: int, also: int | None = None) -> Callable[[object], int]:
    """A reader of whole numbers of at least `least`; `also` is one more value that passes."""
    expected = f"a whole number of at least {least}" + ("" if also is None else f" (or {also})")

    def read(value: object) -> int:
        result = plain_number(value)
        if result is None or result != int(result) or (result < least and result != also):
            raise refuse(expected, value)
        return int(result)

    return read


def plain_number(value: object) -> float | None:
    """A finite number, also out of text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and not _NUMBER.fullmatch(value.strip()):
        return None
    try:
        result = float(value)
    except (ValueError, OverflowError):  # "1__0", or a whole number of more than 308 digits
        return None
    return result if math.isfinite(result) else None


def factor(value: object) -> float:
    """A factor such as `x0.5`; a bare number is refused, for it could be meant as a rate."""
    result = plain_number(value[1:]) if isinstance(value, str) and value[:1] == "x" else None
    if result is None or not 0 < result <= 10:
        raise refuse("a factor such as x0.5 (above x0, at most x10)", value)
    return result


def flag(value: object) -> bool:
    """true or false, also when quoted."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise refuse("true or false", value)


def text(value: object) -> str:
    """Text that is not empty; a number stands for its digits."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value.strip():
        raise refuse("text", value)
    return value


def text_list(value: object) -> object:
    """A list as it is; a single text or number as a list of one; an empty list is refused."""
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return [value]
    if not isinstance(value, list | tuple) or not value:
        raise refuse("text or a list of texts", value)
    return list(value)


def one_of(*words: str, upper: bool = False) -> Callable[[object], str]:
    """A reader of one word out of a few, with the nearest one in the refusal."""
    known = " | ".join(words)

    def read(value: object) -> str:
        word = value.strip() if isinstance(value, str) else ""
        word = word.upper() if upper else word
        if word in words:
            return word
        near = get_close_matches(word, words, n=1)
        raise refuse(known + (f" (did you mean {near[0]}?)" if near else ""), value)

    return read


def pattern(expression: str, expected: str) -> Callable[[object], str]:
    """A reader of text that matches the whole expression; `expected` says it in words."""
    compiled = re.compile(expression)

    def read(value: object) -> str:
        if not isinstance(value, str) or not compiled.fullmatch(value):
            raise refuse(expected, value)
        return value

    return read


def flag_or_text(value: object) -> str | bool:
    """true, false or text, for keys that the proof of concept read both ways."""
    if isinstance(value, bool) or (isinstance(value, str) and value.lower() in ("true", "false")):
        return flag(value)
    return text(value)


def class_path(value: object) -> str:
    """`module.Class`, as Python would import it."""
    if not isinstance(value, str) or not _CLASS.fullmatch(value):
        raise refuse("a class as module.Class", value)
    return value


def variable_name(value: object) -> str:
    """The name of an environment variable."""
    if not isinstance(value, str) or not _VARIABLE.fullmatch(value):
        raise refuse("a variable name of letters, digits and _", value)
    return value


def variable(value: object) -> str | None:
    """An environment variable: text byte for byte, true and false as words, null as absent."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case str() if "\0" not in value:
            return value
        case str():
            raise refuse("text without NUL bytes, which no environment can hold", "\0")
        case _:
            raise refuse("text, a number, true, false or null", value)


def switch(value: object) -> object:
    """A block that may be written as true or false alone: that switches it on or off."""
    return {"enabled": value} if isinstance(value, bool) else value
