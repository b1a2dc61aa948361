"""The comment at a pull request: what `check` says of the task files, for people.

Plain text from outside (names, messages) is shown as text: it can't close a block, mention anybody
or bring a link. The comment begins with MARK, by which the earlier one is found and edited.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from runner.estimates.estimate import Estimate
from runner.estimates.telling import lines, money, time
from runner.finding import Finding
from runner.settings import RunnerSettings

MARK = "<!-- axolotl-runner check -->"
NOTHING = "<!-- nothing to say -->"  # such a comment only takes the place of an earlier one
LONGEST = 60_000  # GitHub refuses more than 65536 characters
MOST_FINDINGS = 25  # of one file
ICONS = {"ok": "✅", "warn": "⚠️", "stop": "⛔"}
RENTED = ("runpod", "vast")


@dataclass(frozen=True)
class CheckedFile:
    """What is said of one file; `settings` and `estimate` are None where it can't be read."""

    path: str
    verdict: str
    findings: Sequence[Finding]
    settings: RunnerSettings | None = None
    estimate: Estimate | None = None


def comment(files: Sequence[CheckedFile], commit: str) -> str:
    """The whole comment, within GitHub's limit."""
    stops = sum(file.verdict == "stop" for file in files)
    head = [MARK, f"### {_headline(len(files), stops)}", ""]
    table = ["| task file | verdict | machine | price | time | cost |", "|---|---|---|---|---|---|"]
    rows = [_row(file) for file in files]
    details = [line for file in files for line in _details(file)]
    tail = [
        "",
        f"`axolotl-runner check` of {commit[:12]}. Nothing was rented.",
    ]
    text = "\n".join([*head, *table, *rows, *details, *tail])
    if len(text) <= LONGEST:
        return text
    short = "\n".join([*head, *table, *rows])
    return short[:LONGEST].rpartition("\n")[0] + "\n\nToo much to show all of it." + "\n".join(tail)


def nothing(commit: str) -> str:
    """The comment where an earlier push had task files and this one has none."""
    return f"{MARK}\n{NOTHING}\nNo task file is changed at {commit[:12]}."


def plain(text: str) -> str:
    """The text as code: nothing in it is read as Markdown, HTML or a mention."""
    one_line = " ".join(text.split())
    ticks = "`" * (max((len(run) for run in re.findall("`+", one_line)), default=0) + 1)
    inside = one_line.replace("|", "\\|")
    return f"{ticks} {inside} {ticks}" if "`" in inside else f"{ticks}{inside}{ticks}"


def _headline(count: int, stops: int) -> str:
    files = f"{count} task file{'' if count == 1 else 's'}"
    if stops:
        return f"{files}: {stops} would not start"
    return f"{files} would start when this is merged"


def _row(file: CheckedFile) -> str:
    verdict = f"{ICONS[file.verdict]} {file.verdict}"
    cells = (plain(file.path), verdict, *_terms(file.settings, file.estimate))
    return f"| {' | '.join(cells)} |"


def _terms(settings: RunnerSettings | None, estimate: Estimate | None) -> tuple[str, str, str, str]:
    """Machine, price, time and cost: what is expected, where that can be known, and what the task
    file allows.
    """
    if settings is None:
        return "", "", "", ""
    best = estimate.best if estimate else None
    hours = _expected(time(best.hours) if best and best.hours else "", f"{settings.max_hours:g} h")
    clouds = [cloud for cloud in settings.cloud if cloud in RENTED]
    if not clouds:
        return "this machine (local)", "–", hours, "–"
    price = settings.max_price_per_hour
    most = price * settings.max_hours
    if settings.budget is not None:
        most = min(most, settings.budget)
    gpus = " or ".join(plain(gpu) for gpu in settings.gpu) or "none named"
    if best and estimate and estimate.auto:
        gpus = f"{plain(best.name)} (auto)"
    counts = " or ".join(str(count) for count in _listed(settings.gpu_count))
    machine = f"{counts}× {gpus} on {', then '.join(settings.cloud)}"
    kind = " (interruptible)" if settings.spot else ""
    per_hour = f"about ${best.price:.2f}/h" if best and best.price is not None else ""
    dollars = money(best.dollars) if best and best.dollars else ""
    return (
        f"{machine}{kind}",
        _expected(per_hour, f"${price:.2f}/h"),
        hours,
        _expected(dollars, f"${most:.2f}"),
    )


def _expected(what: str, most: str) -> str:
    return f"{what}, at most {most}" if what else f"at most {most}"


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _details(file: CheckedFile) -> list[str]:
    told = [f"- {plain(line)}" for line in lines(file.estimate)] if file.estimate else []
    if not (file.findings or told):
        return []
    shown = ["", f"**{plain(file.path)}**", ""]
    for finding in file.findings[:MOST_FINDINGS]:
        place = f"line {finding.line}: " if finding.line else ""
        what = f"{finding.message} — {finding.hint}" if finding.hint else finding.message
        shown.append(f"- {ICONS[finding.level]} {place}{plain(what)}")
    more = len(file.findings) - MOST_FINDINGS
    return [*shown, *([f"- and {more} more"] if more > 0 else []), *told]
