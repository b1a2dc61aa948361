"""What was in the batches around an alarm: the worst rows, as the plugin's `postmortem` event says.

Bounded, because it travels in a state message: ROWS rows with TEXT_LENGTH characters each. The
event on the volume has more of them and longer texts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

ROWS = 8
TEXT_LENGTH = 120


@dataclass(frozen=True)
class SuspectRow:
    """A row that was trained in `step`; `index` into the training set (bins of packed rows: text).

    `loss` is that of the healthy weights, None where it could not be told.
    """

    step: int | None
    index: int | str | None
    loss: float | None
    text: str
    tokens: int | None = None


@dataclass(frozen=True)
class PostMortem:
    """The rows of steps `first` to `last` of attempt `of_attempt`, the worst first."""

    of_attempt: int
    first: int | None
    last: int | None
    rows: tuple[SuspectRow, ...] = ()
    lr: float | None = None
    grad_norm: float | None = None


def post_mortem(events: Iterable[Mapping[str, Any]]) -> PostMortem | None:
    """The newest post-mortem among an attempt's events, None when there is none."""
    found = [event for event in events if event.get("kind") == "postmortem"]
    if not found:
        return None
    event = found[-1]
    return PostMortem(
        of_attempt=int(event.get("of_attempt") or event.get("attempt") or 0),
        first=event.get("first"),
        last=event.get("last"),
        rows=tuple(_row(row) for row in (event.get("rows") or [])[:ROWS]),
        lr=_number(event.get("lr")),
        grad_norm=_number(event.get("grad_norm")),
    )


def from_plain(value: Mapping[str, Any] | None) -> PostMortem | None:
    """Back from what `dataclasses.asdict` made of it."""
    if value is None:
        return None
    return PostMortem(**{**value, "rows": tuple(SuspectRow(**row) for row in value["rows"])})


def newest_of_each(found: Iterable[PostMortem | None]) -> list[PostMortem]:
    """One for each attempt that it is about, in their order; a later one knows more."""
    newest = {each.of_attempt: each for each in found if each is not None}
    return [newest[attempt] for attempt in sorted(newest)]


def _row(row: Mapping[str, Any]) -> SuspectRow:
    index = row.get("index")
    text = " ".join(str(row.get("text") or "").split())
    return SuspectRow(
        step=row.get("step"),
        index=index if index is None or isinstance(index, int) else str(index)[:TEXT_LENGTH],
        loss=_number(row.get("loss")),
        text=text if len(text) <= TEXT_LENGTH else text[: TEXT_LENGTH - 1] + "…",
        tokens=row.get("tokens"),
    )


def _number(value: object) -> float | None:
    """A finite number; JSON has no other, and what is not finite says nothing about a row."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
