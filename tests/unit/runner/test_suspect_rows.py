"""The rows of a post-mortem event, bounded for a state message."""

import json
import math
from dataclasses import asdict
from typing import Any

from runner.postmortem import (
    ROWS,
    TEXT_LENGTH,
    PostMortem,
    SuspectRow,
    from_plain,
    newest_of_each,
    post_mortem,
)


def _event(*rows: dict[str, Any], **fields: Any) -> dict[str, Any]:
    known = {"of_attempt": 1, "first": 23, "last": 28, "lr": 0.004, "grad_norm": 45.0, **fields}
    return {"kind": "postmortem", "attempt": 2, "step": 28, "rows": list(rows), **known}


def _row(index: int = 7, **fields: Any) -> dict[str, Any]:
    return {"step": 24, "index": index, "loss": 11.5, "text": "zzz", "tokens": 12, **fields}


def test_the_worst_rows_are_taken_and_texts_cut() -> None:
    """The event has up to 32 rows of 300 characters; the state message gets the first ones."""
    found = post_mortem([_event(*(_row(index, text="x\n" * 300) for index in range(32)))])
    assert found is not None
    assert [row.index for row in found.rows] == list(range(ROWS))
    assert all(len(row.text) == TEXT_LENGTH and "\n" not in row.text for row in found.rows)


def test_numbers_that_json_has_not_got_become_nothing() -> None:
    """Losses of ruined weights say nothing; in lists they arrive as text."""
    found = post_mortem(
        [_event(_row(loss="nan"), _row(loss=math.inf), _row(index=[1, 2]), grad_norm=math.nan)]
    )
    assert found is not None
    assert [row.loss for row in found.rows] == [None, None, 11.5]
    assert found.rows[2].index == "[1, 2]"
    assert found.grad_norm is None
    json.dumps(asdict(found), allow_nan=False)


def test_it_comes_back_from_plain_values() -> None:
    """As JSON leaves it."""
    found = post_mortem([_event(_row())])
    assert found is not None
    assert from_plain(json.loads(json.dumps(asdict(found)))) == found
    assert from_plain(None) is None


def test_without_the_event_there_is_none() -> None:
    """An attempt that came after no alarm."""
    assert post_mortem([{"kind": "step", "attempt": 1, "step": 1}]) is None


def test_the_later_one_about_an_attempt_counts() -> None:
    """At the alarm the weights may be ruined; the next attempt's can score the rows."""
    unscored = PostMortem(1, 23, 28, (SuspectRow(24, 7, None, "zzz"),))
    scored = PostMortem(1, 23, 28, (SuspectRow(24, 7, 11.5, "zzz"),))
    other = PostMortem(2, 30, 31)
    assert newest_of_each([unscored, None, other, scored]) == [scored, other]
