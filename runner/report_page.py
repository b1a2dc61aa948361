"""The page of a run's end in Markdown: for a Prefect artifact, and as report.md beside report.json.

Not covered: Markdown inside a reason (bold, links) is shown as such; HTML and tables are escaped.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from runner.curve import CurvePoint, curve_png, curve_text
from runner.notice import dollars, first_and_last, split_long_lines
from runner.postmortem import PostMortem, SuspectRow
from runner.report import Attempt, PodBill, Report
from runner.rungs import words

LOG_LENGTH = 6000
LOG_LINE_LENGTH = 1000
NONE = "–"

ICONS = {"completed": "✅", "failed": "❌", "cancelled": "⏹"}


def report_page(
    report: Report,
    points: Sequence[CurvePoint],
    *,
    links: Mapping[str, str],
    picture: str | None = None,
    log: str = "",
    postmortems: Sequence[PostMortem] = (),
) -> str:
    """The page as Markdown, ending in a newline.

    `links` are name to address. `picture` is the address of the curve's picture, such as
    `curve.png` for a report.md beside it; without one the picture is embedded as a data URI.
    `log` is the end of the trainer's log; it is shown unless the run completed. `postmortems` tell
    which rows were trained around an alarm.
    """
    parts = [_headline(report), _key_facts(report, links), _curve(report, points, picture)]
    if report.attempts:
        parts += ["## Attempts", _table(ATTEMPT_COLUMNS, map(_attempt_row, report.attempts))]
    parts += _batches(postmortems)
    if report.pods:
        parts += ["## Pods and cost", _table(POD_COLUMNS, _pod_rows(report))]
    phases = {name: value for name, value in report.seconds if value is not None}
    if phases:
        parts += ["## Time", _table(list(phases), [[_duration(s) for s in phases.values()]])]
    if log.strip() and report.state != "completed":
        parts += ["## Last log lines", _log_block(log)]
    return "\n\n".join(part for part in parts if part) + "\n"


def report_curve(report: Report, points: Sequence[CurvePoint]) -> bytes:
    """The loss curve of the run as a PNG, with the alarms and rollbacks of its attempts."""
    alarms = [
        (attempt.n, attempt.onset_step or attempt.alarm_step, attempt.alarm_step)
        for attempt in report.attempts
        if attempt.alarm_step is not None
    ]
    rollbacks = [
        (attempt.n, attempt.from_checkpoint)
        for attempt in report.attempts
        if attempt.n > 1 and attempt.from_checkpoint is not None
    ]
    return curve_png(points, alarms, rollbacks, title=report.task)


def _headline(report: Report) -> str:
    outcome = report.outcome.replace("_", " ")
    state = report.state if outcome == report.state else f"{report.state}: {outcome}"
    return f"# {ICONS[report.state]} {state}\n\n{_safe(report.reason)}".rstrip()


def _key_facts(report: Report, links: Mapping[str, str]) -> str:
    steps = NONE if report.final_step is None else str(report.final_step)
    if report.planned_steps is not None:
        steps += f" of {report.planned_steps}"
    facts = {
        "Task": _code(report.task) + (f" at {_code(report.commit[:12])}" if report.commit else ""),
        "Run": _code(report.run),
        "Steps": steps,
        "Final loss": NONE if report.final_loss is None else f"{report.final_loss:.4g}",
        "Model": _model(report),
        "Cost": dollars(report.cost_usd),
        "Time": _duration(report.seconds.total),
        "W&B offline": _code(report.wandb.sync) if report.wandb and report.wandb.sync else "",
        "Links": " · ".join(f"[{_safe(name)}](<{_address(url)}>)" for name, url in links.items()),
    }
    return _table(["", ""], [[f"**{name}**", value] for name, value in facts.items() if value])


def _model(report: Report) -> str:
    if report.model_dir is None:
        return "published" if report.published else "none"
    return f"{_code(report.model_dir)}, {'published' if report.published else 'not published'}"


def _curve(report: Report, points: Sequence[CurvePoint], picture: str | None) -> str:
    """The picture; without matplotlib (no part of a pod's environment) the curve as text."""
    if not points:
        return ""
    if picture is None:
        try:
            png = report_curve(report, points)
        except ImportError:
            return f"```\n{curve_text(points, width=100)}\n```"
        picture = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    return f"![Loss over steps, attempts in colours]({picture})"


ATTEMPT_COLUMNS = [
    *("attempt", "pod", "cloud", "from checkpoint", "steps", "outcome", "onset", "alarm", "rung")
]
POD_COLUMNS = ["pod", "cloud", "created", "ended", "per hour", "cost"]


def _attempt_row(attempt: Attempt) -> list[str]:
    first, last = attempt.first_step, attempt.last_step
    return [
        str(attempt.n),
        _cell(attempt.pod),
        _cell(attempt.cloud),
        _cell(attempt.from_checkpoint),
        NONE if first is None or last is None else f"{first}–{last}",
        _cell(attempt.outcome and attempt.outcome.replace("_", " ")),
        _cell(attempt.onset_step),
        _cell(attempt.alarm_step),
        _cell(words(attempt.rung) if attempt.rung is not None else None),
    ]


ROW_COLUMNS = ["step", "row", "loss", "tokens", "begins with"]


def _batches(postmortems: Sequence[PostMortem]) -> list[str]:
    """Which rows were trained around each alarm."""
    found = [each for each in postmortems if each.rows]
    if not found:
        return []
    parts = ["## What was in the batch"]
    for each in found:
        parts += [_window(each), _table(ROW_COLUMNS, map(_row, each.rows))]
    return parts


def _window(found: PostMortem) -> str:
    known = [
        f"{name} {value:.3g}"
        for name, value in (("learning rate", found.lr), ("grad_norm up to", found.grad_norm))
        if value is not None
    ]
    scored = any(row.loss is not None for row in found.rows)
    return (
        f"Attempt {found.of_attempt}, steps {_cell(found.first)}–{_cell(found.last)}"
        + (f" ({', '.join(known)})" if known else "")
        + (", worst first by the loss of healthy weights:" if scored else ", not scored:")
    )


def _row(row: SuspectRow) -> list[str]:
    loss = None if row.loss is None else f"{row.loss:.4g}"
    text = _code(row.text) if row.text.strip() else NONE
    return [_cell(row.step), _cell(row.index), _cell(loss), _cell(row.tokens), text]


def _pod_rows(report: Report) -> Iterable[list[str]]:
    for pod in report.pods:
        yield _pod_row(pod)
    if len(report.pods) > 1:
        yield ["**all**", "", "", "", "", f"**{dollars(report.cost_usd)}**"]


def _pod_row(pod: PodBill) -> list[str]:
    return [
        _cell(pod.id),
        _cell(pod.cloud),
        _minute(pod.created),
        "**not confirmed**" if pod.terminated is None else _minute(pod.terminated),
        NONE if pod.price_per_hour is None else dollars(pod.price_per_hour),
        "not known" if pod.cost_usd is None else dollars(pod.cost_usd),
    ]


def _log_block(log: str) -> str:
    lines = first_and_last(split_long_lines(log.strip(), LOG_LINE_LENGTH), LOG_LENGTH)
    text = "".join(c for c in "\n".join(lines) if c in "\n\t" or c.isprintable())
    # A fence is closed only by one at least as long: one longer than any in the log.
    longest = max((len(ticks) for ticks in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: object) -> str:
    return NONE if value is None or value == "" else _safe(str(value))


def _safe(text: str) -> str:
    """One line that is neither HTML nor the end of a table's cell."""
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace("|", "\\|")


def _code(text: str) -> str:
    """A code span; HTML is not read in there, a pipe would still end the table's cell."""
    return f"`{' '.join(text.split()).replace('`', chr(39)).replace('|', chr(92) + '|')}`"


def _address(url: str) -> str:
    return re.sub(r"[\s<>|]", lambda match: f"%{ord(match[0]):02X}", url)


def _minute(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S}Z"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return NONE
    if seconds < 90:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
