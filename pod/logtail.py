"""What a trainer's log says to a person: its useful last lines, and the one naming the error."""

from __future__ import annotations

import re
from collections.abc import Sequence

LINES = 20
LINE_LENGTH = 300

_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_BAR = re.compile(r"\d+%\|.*\||\d+(\.\d+)?\s?(s/it|it/s|[kMG]?B/s)\b")
_ERROR = re.compile(
    r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Interrupt|LossSpike|SystemExit))\b(?::|$)"
)
# These name the launcher's disappointment, not the cause, which stands further up.
_SECOND_HAND = ("ChildFailedError", "CalledProcessError", "SystemExit")


def of_attempt(log: str, attempt: int) -> str:
    """Return the part of a log that belongs to an attempt, all of it if the mark is cut off."""
    _, mark, rest = log.rpartition(f"=== attempt {attempt} ===\n")
    return (rest if mark else log).replace("\r", "\n")  # progress bars overwrite their line


def tail(log: str, lines: int = LINES) -> tuple[str, ...]:
    """Return the last useful lines: no progress bars, no blank ones, long ones cut with a mark."""
    return tuple(cut(line) for line in useful(log)[-lines:])


def error_line(log: str) -> str | None:
    """Return the last line that names an exception, with its details if they follow; else None."""
    lines = useful(log)
    second_hand = None
    for index in range(len(lines) - 1, -1, -1):
        match = _ERROR.match(lines[index])
        if match is None:
            continue
        if match[1] not in _SECOND_HAND:
            return headline(lines[index:])
        second_hand = second_hand or lines[index]
    return None if second_hand is None else cut(second_hand)


def headline(lines: Sequence[str]) -> str:
    """Return one line that says what an exception of several lines is about."""
    # pydantic tells the number of errors in its first line and the errors in the next ones.
    count = 3 if lines and "validation error" in lines[0] else 1
    return cut(" ".join(line.strip() for line in lines[:count]))


def useful(log: str) -> list[str]:
    """Return the lines of a log without colours, progress bars and blank ones."""
    lines = (_COLOURS.sub("", line).rstrip() for line in re.split(r"[\r\n]+", log))
    return [line for line in lines if line.strip() and not _BAR.search(line[: 4 * LINE_LENGTH])]


def cut(line: str) -> str:
    """Return a line of at most LINE_LENGTH characters; a cut one says so."""
    return line if len(line) <= LINE_LENGTH else line[: LINE_LENGTH - 8] + " … (cut)"
