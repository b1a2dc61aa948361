"""Filters, order and limit of a search, as its body has them, and of the list of instances."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.emulators.vast.problems import Refused

_OPS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "neq": operator.ne,
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
    "in": lambda value, wanted: value in wanted,
    "notin": lambda value, wanted: value not in wanted,
}
# What stands in a search beside the filters.
APART = ("order", "type", "limit", "allocated_storage", "disable_bundling", "client_id")
# What is seen by another name than it is asked for.
_DERIVED: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "verified": lambda row: row["verification"] == "verified",
    "datacenter": lambda row: bool(row["hosting_type"]),
    "external": lambda row: bool(row["external"]),
    "geolocation": lambda row: str(row["geolocation"]).rpartition(", ")[2],
}
# Computed, so the list of instances can't be filtered by them.
NOT_FILTERABLE = ("dph_total", "num_gpus")


def chosen(rows: Sequence[dict[str, Any]], filters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows that pass all filters; Refused for a column or an operator that does not exist."""
    columns = set(rows[0]) | set(_DERIVED) if rows else None
    for column, tests in filters.items():
        if columns is not None and column not in columns:
            raise _bad(f"{column} is not a valid search key")
        if not isinstance(tests, dict) or set(tests) - set(_OPS):
            raise _bad(f"{column}: {tests!r} is not a filter")
    return [row for row in rows if all(_passes(row, *each) for each in filters.items())]


def ordered(rows: list[dict[str, Any]], order: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """Sorted by pairs of column and direction, the first one first."""
    for column, direction in reversed(order):
        if rows and column not in rows[0]:
            raise _bad(f"can't order by {column}")
        rows = sorted(rows, key=lambda row: row[column], reverse=direction == "desc")
    return rows


def _passes(row: Mapping[str, Any], column: str, tests: Mapping[str, Any]) -> bool:
    value = _DERIVED[column](row) if column in _DERIVED else row.get(column)
    return all(_holds(name, value, wanted) for name, wanted in tests.items())


def _holds(name: str, value: Any, wanted: Any) -> bool:
    if value is None and name in ("gt", "gte", "lt", "lte"):
        return False
    if isinstance(value, int | float) and isinstance(wanted, str):
        wanted = _number(wanted)  # the SDK sends the numbers of its text queries as text
    try:
        return bool(_OPS[name](value, wanted))
    except TypeError:
        raise _bad(f"{wanted!r} can't be compared") from None


def _number(text: str) -> float:
    try:
        return float({"true": "1", "false": "0"}.get(text.lower(), text))
    except ValueError:
        raise _bad(f"{text!r} is no number") from None


def _bad(msg: str) -> Refused:
    return Refused(400, "invalid_request", f"Error in query parameters: {msg}", rule=True)
