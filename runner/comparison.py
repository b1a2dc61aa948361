"""The runs of one matrix side by side, as a Markdown table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from runner.notice import dollars

NONE = "–"


@dataclass(frozen=True)
class Row:
    """One run of a matrix; `values` is what it sets, `state` the name of its state. None is
    unknown yet; seconds, USD.
    """

    number: int
    values: Mapping[str, object]
    state: str
    link: str = ""
    final_loss: float | None = None
    steps: str = ""
    seconds: float | None = None
    cost_usd: float | None = None


def comparison(title: str, rows: Iterable[Row]) -> str:
    """The table, the lowest final loss of a completed run in bold."""
    shown = sorted(rows, key=lambda row: row.number)
    keys = list(dict.fromkeys(key for row in shown for key in row.values))
    ended = [r.final_loss for r in shown if r.state == "Completed" and r.final_loss is not None]
    best = min(ended, default=None)
    head = ["", *keys, "state", "final loss", "steps", "time", "cost"]
    lines = [f"# {_cell(title)}", "", _line(head), _line(["---"] * len(head))]
    lines += [_line(_cells(row, keys, best)) for row in shown]
    done = sum(row.state == "Completed" for row in shown)
    spent = sum(row.cost_usd or 0.0 for row in shown)
    lines += ["", f"{done} of {len(shown)} completed · {dollars(spent)} so far"]
    return "\n".join(lines) + "\n"


def _cells(row: Row, keys: Sequence[str], best: float | None) -> list[str]:
    number = f"[{row.number}]({row.link})" if row.link.startswith("http") else str(row.number)
    loss = NONE if row.final_loss is None else f"{row.final_loss:.4f}"
    if row.final_loss is not None and row.final_loss == best and row.state == "Completed":
        loss = f"**{loss}**"
    return [
        number,
        *(_cell(str(row.values.get(key, NONE))) for key in keys),
        row.state,
        loss,
        row.steps or NONE,
        NONE if row.seconds is None else _duration(row.seconds),
        NONE if row.cost_usd is None else dollars(row.cost_usd),
    ]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;").replace("`", "'")


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
