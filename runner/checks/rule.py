"""One pair of settings that do not go together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Values = Mapping[str, object]


@dataclass(frozen=True)
class Rule:
    """`keys`: the settings concerned, the one to change first. `why` is axolotl's reason."""

    keys: tuple[str, ...]
    when: Callable[[Values], bool]
    why: str
    todo: str


def both(first: str, second: str, why: str, todo: str) -> Rule:
    """A rule for two settings that may not both be set."""
    return Rule(
        (first, second),
        lambda values: bool(values.get(first)) and bool(values.get(second)),
        why,
        todo,
    )


def removed(key: str, todo: str) -> Rule:
    """A rule for a setting that axolotl no longer takes."""
    return Rule((key,), lambda values: bool(values.get(key)), f"{key} is no longer supported", todo)


def number_of(values: Values, key: str, default: float = 0) -> float:
    """A number of the file; the default for everything else, about which axolotl complains."""
    value = values.get(key)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else default


def below(values: Values, key: str) -> Values:
    """The mapping at a key, empty where there is none."""
    value = values.get(key)
    return value if isinstance(value, Mapping) else {}


def items(values: Values, key: str) -> list[Values]:
    """The mappings in the list at a key."""
    value = values.get(key)
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
