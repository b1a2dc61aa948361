"""What is to be changed in a YAML mapping, and what the mapping means afterwards."""

from __future__ import annotations

import math
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass

from runner.yaml_source import Path


@dataclass(frozen=True)
class Set:
    """Give the value at `path` this value; a last key that is absent is added."""

    path: Path
    value: object


@dataclass(frozen=True)
class Remove:
    """Take out a top-level key; with `comments`, also the comments that belong to it."""

    key: str
    comments: bool = False


@dataclass(frozen=True)
class Append:
    """Add an item to the list at a top-level key; a single value or nothing becomes a list."""

    key: str
    value: str


Change = Set | Remove | Append


def changed(data: dict[str, object], changes: Iterable[Change]) -> dict[str, object]:
    """A copy of the plain data with the changes made."""
    result = deepcopy(data)
    for change in changes:
        match change:
            case Remove(key=key):
                result.pop(key, None)
            case Append(key=key, value=value):
                result[key] = [*_as_list(result.get(key)), value]
            case Set(path=path, value=value):
                _put(result, path, value)
    return result


def _as_list(value: object) -> list[object]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _put(target: object, path: Path, value: object) -> None:
    for step in path[:-1]:
        target = target[step]  # type: ignore[index]
    target[path[-1]] = value  # type: ignore[index]


def same(left: object, right: object) -> bool:
    """Equal in value and type all the way down; NaN equals NaN."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left):
        return math.isnan(right)
    return left == right
