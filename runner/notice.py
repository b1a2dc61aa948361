"""What a notice says: text alone, sent by blocks/notifier.py or by nobody.

Contract, made for Discord and kept for every service:
- the first 300 characters hold run, state, cost and link;
- title and body together stay below Discord's 2000 characters, since a longer message is
  refused whole; of a long log the first and the last lines are shown;
- nothing in it pings anybody, no text from outside can leave its code block, and secrets are
  scrubbed before anything is cut;
- a quiet notice is one line; a digest stands for many notices of one kind.

Not covered: other Markdown in a reason (bold, links) is shown as the service shows it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, assert_never

from runner.errors import Outcome
from runner.secrets import scrub

Kind = Literal["started", "spike", "resumed", "idle", "budget", "completed", "failed"]
NotifyType = Literal["info", "success", "warning", "failure"]

# Discord refuses 2001 characters; the rest is room for what a service adds around ours.
LENGTH = 1900
TITLE_LENGTH = 90
REASON_LENGTH = 400
FACT_LENGTH = 120
LINK_LENGTH = 200
QUIET_LENGTH = 160
LOG_LINE_LENGTH = 300

_ZERO_WIDTH = "\u200b"
# Colours and cursor moves of a terminal, as progress bars and rich tracebacks print them.
_TERMINAL_CODE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")


@dataclass(frozen=True)
class Notice:
    """One message; `notify_type` gives the colour where the service has one.

    `short` is its line in a digest, `link` where its run is in the UI.
    """

    kind: Kind
    title: str
    body: str
    notify_type: NotifyType
    short: str = ""
    link: str = ""


def compose(
    kind: Kind,
    *,
    run: str,
    task: str,
    reason: str = "",
    outcome: Outcome | None = None,
    cost_usd: float | None = None,
    link: str = "",
    links: Mapping[str, str] | None = None,
    facts: Mapping[str, object] | None = None,
    log: str = "",
    quiet: bool = False,
) -> Notice:
    """The notice of one event in a run's life.

    `outcome` replaces the kind as the state's word where a run ended; `cost_usd` None means not
    known yet; `link` is the run in the UI, `links` are name to address of what else there is to
    see (W&B, the hub); `facts` are short further lines (attempt, step, loss, model); `log` is the
    end of the trainer's log, of which the first and last lines are shown as far as there is room.
    `quiet` leaves one line of it all.
    """
    state = (outcome or kind).replace("_", " ")
    title = f"{_icon(kind)} {state}: "
    title += _cut_front(_plain(task), TITLE_LENGTH - len(title))
    cost = "cost not known yet" if cost_usd is None else dollars(cost_usd)
    link = harmless(link).strip()
    why = _plain(scrub(reason))
    short = f"`{_plain(run)[:8]}` {_cut_front(_plain(task), 60)}"
    short += f" · {state} · {cost}" if outcome not in (None, kind) else f" · {cost}"
    if quiet:
        parts = [f"{title} · run `{_cut(_plain(run), 60)}`", cost, link, _cut(why, QUIET_LENGTH)]
        body = " · ".join(part for part in parts if part)
        return Notice(kind, "", body, _notify_type(kind), short, link)
    head = [f"run `{_cut(_plain(run), 60)}`", f"**{state}**", cost, link]
    lines = [" · ".join(part for part in head if part)]
    if why:
        lines.append(_cut(why, REASON_LENGTH))
    for name, value in (facts or {}).items():
        lines.append(f"{_plain(name)}: {_cut(_plain(scrub(str(value))), FACT_LENGTH)}")
    for name, address in (links or {}).items():
        if address and len(address) <= LINK_LENGTH:  # half an address leads nowhere
            lines.append(f"{_plain(name)}: {harmless(scrub(address)).strip()}")
    room = LENGTH - len(title) - 1
    body = _cut("\n".join(lines), room)
    if log.strip():
        body += _log_block(scrub(log), room - len(body))
    return Notice(kind, title, body, _notify_type(kind), short, link)


def digest(notices: Sequence[Notice]) -> Notice:
    """One notice in the place of many of one kind: a line for each, as far as there is room."""
    kind = notices[0].kind
    title = f"{_icon(kind)} {len(notices)} runs: {kind}"
    place, found, _ = notices[0].link.partition("/flow-run/")
    head = [place] if found else []
    room = LENGTH - len(title) - sum(len(line) + 1 for line in head) - len(_more(len(notices))) - 2
    lines = _fitting([notice.short for notice in notices], room)
    left = len(notices) - len(lines)
    body = "\n".join([*head, *lines, *([_more(left)] if left else [])])
    return Notice(kind, title, body, _notify_type(kind), link=notices[0].link)


def dollars(amount: float) -> str:
    """USD for people: cents, but four digits below ten cents (`$0.0123`), where they matter."""
    return f"${amount:,.4f}" if 0 < amount < 0.1 else f"${amount:,.2f}"


def harmless(text: str) -> str:
    """Text that pings nobody and closes no code block, without control characters.

    A zero-width space breaks `@everyone`, `<@1>`, `<@&1>`, `<#1>`, `<!here>` and three backticks.
    Any `@word` is broken: Apprise takes each for a mention and sends it again as one.
    """
    text = _TERMINAL_CODE.sub("", text)
    text = "".join(c for c in text if c in "\n\t" or unicodedata.category(c)[0] != "C")
    text = re.sub(r"@(?=\w|&)", f"@{_ZERO_WIDTH}", text)
    text = re.sub(r"<(?=[@#!])", f"<{_ZERO_WIDTH}", text)
    return re.sub(r"`(?=`)", f"`{_ZERO_WIDTH}", text)


def split_long_lines(text: str, most: int = 2000) -> list[str]:
    """Lines of trainer output, none longer than `most` characters; a cut one says so.

    Split at carriage returns too: a progress bar is one line of megabytes otherwise, and log
    handlers drop a record that is too large instead of cutting it.
    """
    lines = re.split(r"\r\n|\r|\n", _TERMINAL_CODE.sub("", text))
    return [line if len(line) <= most else _cut_with_count(line, most) for line in lines]


def first_and_last(lines: Sequence[str], room: int) -> list[str]:
    """Lines that fit in `room` characters with their newlines: some first, mostly last ones.

    A third is for the beginning, where the cause is; the rest for the end, where a traceback
    names its error. A line in between says how many are left out.
    """
    if sum(len(line) + 1 for line in lines) <= room:
        return list(lines)
    room -= len(_left_out(len(lines))) + 1
    first = _fitting(lines, room // 3)
    used = sum(len(line) + 1 for line in first)
    last = _fitting(lines[len(first) :][::-1], room - used)[::-1]
    return [*first, _left_out(len(lines) - len(first) - len(last)), *last]


def _more(count: int) -> str:
    return f"… and {count} more"


def _left_out(count: int) -> str:
    return f"… {count} lines left out …"


def _fitting(lines: Sequence[str], room: int) -> list[str]:
    taken: list[str] = []
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        taken.append(line)
    return taken


def _log_block(log: str, room: int) -> str:
    """The log in a code block of at most `room` characters, or nothing where that is too few."""
    opening, closing = "\n```\n", "\n```"
    room -= len(opening) + len(closing)
    if room < 2 * LOG_LINE_LENGTH // 3:
        return ""
    # Of a progress bar only the state it was left in: what a terminal would still show.
    shown = (line.rstrip("\r").rpartition("\r")[2] for line in log.split("\n"))
    short = split_long_lines("\n".join(shown), LOG_LINE_LENGTH)
    lines = [line for line in map(harmless, short) if line.strip()]
    return opening + "\n".join(first_and_last(lines, room)) + closing


def _plain(text: str) -> str:
    """One harmless line that opens no code span of its own."""
    return " ".join(harmless(text).split()).replace("`", "'")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _cut_front(path: str, most: int) -> str:
    """Of a long path the end tells more than the beginning."""
    return path if len(path) <= most else "…" + path[-(most - 1) :]


def _cut_with_count(line: str, most: int) -> str:
    mark = f" …[{len(line) - most} characters cut]"
    return line[: most - len(mark)] + mark if most > len(mark) else line[:most]


def _icon(kind: Kind) -> str:
    match kind:
        case "started":
            return "▶"
        case "spike":
            return "📈"
        case "resumed":
            return "↩"
        case "idle":
            return "💤"
        case "budget":
            return "💰"
        case "completed":
            return "✅"
        case "failed":
            return "❌"
        case other:
            assert_never(other)


def _notify_type(kind: Kind) -> NotifyType:
    match kind:
        case "started" | "resumed":
            return "info"
        case "spike" | "idle" | "budget":
            return "warning"
        case "completed":
            return "success"
        case "failed":
            return "failure"
        case other:
            assert_never(other)
