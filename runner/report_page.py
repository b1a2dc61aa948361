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
from runner.report import Attempt, Diagnosis, PodBill, Report
from runner.rungs import words

LOG_LENGTH = 6000
ROW_TEXT_LENGTH = 60  # more would make the page wider than a screen
LOG_LINE_LENGTH = 1000
NONE = "–"

# Of plain fonts: not every machine has coloured ones.
ICONS = {"completed": "✔", "failed": "✖", "cancelled": "■"}


def report_page(
    report: Report,
    points: Sequence[CurvePoint],
    *,
    links: Mapping[str, str],
    picture: str | None = None,
    log: str = "",
    postmortems: Sequence[PostMortem] = (),
    evals: Sequence[CurvePoint] = (),
    healthy: int | None = None,
) -> str:
    """The page as Markdown, ending in a newline.

    `links` are name to address. `picture` is the address of the curve's picture, such as
    `curve.png` for a report.md beside it; without one the picture is embedded as a data URI.
    `log` is the end of the trainer's log; it is shown unless the run completed. `postmortems` tell
    which rows were trained around an alarm, `evals` are the losses of evaluations, `healthy` is the
    step of the last checkpoint that a run which goes on would start from.
    """
    parts = [_headline(report), diagnosis_section(report.diagnosis), _key_facts(report)]
    parts += [_links(links), _curve(report, points, evals, picture), *_way_on(report, healthy)]
    if report.attempts:
        parts += ["## Attempts", _table(ATTEMPT_COLUMNS, map(_attempt_row, report.attempts))]
    parts += _batches(postmortems)
    phases = _phase_rows(report)
    if phases:
        parts += ["## Time", _table(PHASE_COLUMNS, phases)]
    if report.pods:
        parts += ["## Pods and cost", _table(POD_COLUMNS, _pod_rows(report))]
    if log.strip() and report.state != "completed":
        parts += ["## Last log lines", _log_block(log)]
    return "\n\n".join(part for part in [*parts, _footer(report)] if part) + "\n"


def diagnosis_section(found: Diagnosis | None) -> str:
    """Why the run failed and what to do, as Markdown; empty without a diagnosis."""
    if found is None:
        return ""
    lines = _log_block("\n".join(found.lines)) if found.lines else ""
    return f"**{_safe(found.kind)}** — {_safe(found.advice)}\n\n{lines}".rstrip()


def report_curve(
    attempts: Sequence[Attempt],
    points: Sequence[CurvePoint],
    evals: Sequence[CurvePoint] = (),
    *,
    title: str,
) -> bytes:
    """The loss curve of the run as a PNG, with the alarms and rollbacks of its attempts."""
    alarms = [
        (attempt.n, attempt.onset_step or attempt.alarm_step, attempt.alarm_step)
        for attempt in attempts
        if attempt.alarm_step is not None
    ]
    rollbacks = [
        (attempt.n, attempt.from_checkpoint)
        for attempt in attempts
        if attempt.n > 1 and attempt.from_checkpoint is not None
    ]
    return curve_png(points, alarms, rollbacks, evals, title=title)


def _headline(report: Report) -> str:
    outcome = report.outcome.replace("_", " ")
    state = report.state if outcome == report.state else f"{report.state}: {outcome}"
    return f"# {ICONS[report.state]} {state}\n\n{_safe(report.reason)}".rstrip()


def _key_facts(report: Report) -> str:
    """What everybody asks first, in one line of large cells."""
    steps = NONE if report.final_step is None else str(report.final_step)
    if report.planned_steps is not None:
        steps += f" of {report.planned_steps}"
    facts = {
        "task": _code(report.task),
        "steps": steps,
        "final loss": NONE if report.final_loss is None else f"{report.final_loss:.4g}",
        "attempts": str(len(report.attempts) or NONE),
        "time": _duration(report.seconds.total),
        "cost": dollars(report.cost_usd),
        "model": _model(report),
    }
    return _table(list(facts), [list(facts.values())])


def _links(links: Mapping[str, str]) -> str:
    return " · ".join(f"[{_safe(name)}](<{_address(url)}>)" for name, url in links.items() if url)


def _model(report: Report) -> str:
    if report.model_dir is None and not report.published:
        return "none"
    return "published" if report.published else "not published"


def _curve(
    report: Report,
    points: Sequence[CurvePoint],
    evals: Sequence[CurvePoint],
    picture: str | None,
) -> str:
    """The picture; without matplotlib (no part of a pod's environment) the curve as text."""
    if not points:
        return ""
    if picture is None:
        try:
            png = report_curve(report.attempts, points, evals, title=report.task)
        except ImportError:
            return f"```\n{curve_text(points, width=100)}\n```"
        picture = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    return f"![Loss over steps, attempts in colours]({picture})"


def _way_on(report: Report, healthy: int | None) -> list[str]:
    """What the reader can do about a run that did not complete."""
    if report.state == "completed":
        return []
    if report.outcome == "config_error":
        return ["## How to go on", "Correct the task file and push or run it again."]
    more = f" --budget {max(1.0, 2 * report.cost_usd):.2f}" if report.outcome == "budget" else ""
    start = "from the start" if healthy is None else f"from checkpoint {healthy}, the last healthy"
    return [
        "## How to go on",
        f"```\naxolotl-runner resume {report.run[:8]}{more}\n```",
        f"It goes on {start}; what was spent so far still counts.",
    ]


def _footer(report: Report) -> str:
    commit = f" · commit {_code(report.commit[:12])}" if report.commit else ""
    model = f" · model {_code(report.model_dir)}" if report.model_dir else ""
    offline = report.wandb.sync if report.wandb else None
    sync = f" · W&B offline: {_code(offline)}" if offline else ""
    return f"Run {_code(report.run)}{commit}{model}{sync}"


ATTEMPT_COLUMNS = ["attempt", "from", "steps", "changed", "ended", "onset → alarm", "pod"]
PHASE_COLUMNS = ["phase", "time", "share", ""]
POD_COLUMNS = ["pod", "cloud", "created", "ended", "per hour", "cost"]
BAR_LENGTH = 24


def _attempt_row(attempt: Attempt) -> list[str]:
    first, last = attempt.first_step, attempt.last_step
    began = attempt.from_checkpoint
    trouble = NONE
    if attempt.alarm_step is not None:
        trouble = f"{attempt.onset_step or attempt.alarm_step} → {attempt.alarm_step}"
    return [
        str(attempt.n),
        "the start" if began is None else f"checkpoint {began}",
        NONE if first is None or last is None else f"{first}–{last}",
        _cell(words(attempt.rung) if attempt.rung is not None else None),
        _cell(attempt.outcome and attempt.outcome.replace("_", " ")),
        trouble,
        _cell(attempt.pod),
    ]


def _phase_rows(report: Report) -> list[list[str]]:
    """Each phase with its part of the whole as a bar; what belongs to none comes last."""
    known = {name: value for name, value in report.seconds if value is not None}
    total = known.pop("total", None)
    rows = list(known.items())
    if total is not None and rows and (rest := total - sum(known.values())) >= 0.05 * total:
        rows.append(("between", rest))
    whole = max(total or 0.0, sum(seconds for _, seconds in rows))
    shown = [[name, _duration(seconds), *_share(seconds, whole)] for name, seconds in rows]
    every = [["**total**", f"**{_duration(total)}**", "", ""]] if total is not None else []
    return shown + every


def _share(part: float, whole: float) -> tuple[str, str]:
    share = part / whole if whole else 0.0
    return f"{100 * share:.0f} %", "█" * round(share * BAR_LENGTH)


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
    text = _code(row.text[:ROW_TEXT_LENGTH]) if row.text.strip() else NONE
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
    """One line that is neither HTML nor the end of a table's cell.

    With backslashes, not entities: one of Prefect's two UIs shows those as they are.
    """
    return re.sub(r"(&(?=#?\w+;)|[<>|\\])", r"\\\1", " ".join(text.split()))


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
