"""The passages of a log that tell of an error: tracebacks with the message that ends them.

A passage is one traceback, or several that Python chained ("During handling of the above …"). The
ranks of a trainer write into one log, each line with its rank in front, so each rank's lines are
read apart. Progress bars are no lines: what a carriage return writes over is not part of a log.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pod.logtail import cut, useful

MESSAGE_LINES = 8  # of one exception; pydantic writes three for each wrong key
_RANK = re.compile(r"^\[(?:rank|default)(\d+)\]:\s?")
_BEGIN = "Traceback (most recent call last)"
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_FILE = re.compile(r'^\s+File "')
# Whatever begins a line of another program's log ends the message of an exception.
_OTHERS = re.compile(
    r"^(\[?\d{4}-\d\d-\d\d|[EWI]\d{4} |(INFO|WARNING|ERROR|DEBUG)\b|wandb: |[=-]{5}|\[rank\d+\]:\[)"
)


@dataclass(frozen=True)
class Passage:
    """One error that Python told of: `told` are the messages of its chain, the last one last.

    `frames` are the `File` lines and the code below them; `rank` is None where no rank said it.
    """

    at: int  # number of its last line in the log
    rank: int | None
    told: str
    frames: str
    lines: tuple[str, ...]  # for people: the innermost place and the message


@dataclass(frozen=True)
class _Line:
    at: int
    text: str


def passages(log: str) -> list[Passage]:
    """The errors in a log, in the order in which they were told."""
    by_rank: dict[int | None, list[_Line]] = {}
    for at, line in enumerate(useful(log)):
        match = _RANK.match(line)
        rank = int(match[1]) if match else None
        by_rank.setdefault(rank, []).append(_Line(at, line[match.end() :] if match else line))
    found = [each for rank, lines in by_rank.items() for each in _of_rank(rank, lines)]
    return sorted(found, key=lambda passage: passage.at)


def _of_rank(rank: int | None, lines: list[_Line]) -> list[Passage]:
    found: list[Passage] = []
    at, open_passage, chained = 0, None, False
    while at < len(lines):
        text = lines[at].text
        if text.startswith(_CHAINED):
            chained = True
        elif text.lstrip().startswith(_BEGIN):
            end = _end_of_frames(lines, at + 1)
            after = _end_of_message(lines, end)
            passage = _passage(rank, lines[at + 1 : end], lines[end:after])
            open_passage = _joined(open_passage, passage) if chained and open_passage else passage
            if chained and found:
                found.pop()
            found.append(open_passage)
            at, chained = after, False
            continue
        at += 1
    return found


def _end_of_frames(lines: Sequence[_Line], at: int) -> int:
    while at < len(lines) and lines[at].text[:1].isspace():
        at += 1
    return at


def _end_of_message(lines: Sequence[_Line], at: int) -> int:
    """The first line after the message that begins at `at`; a message may have several lines."""
    end = at + 1
    while end < min(len(lines), at + MESSAGE_LINES) and _goes_on(lines[end].text):
        end += 1
    return min(end, len(lines))


def _goes_on(text: str) -> bool:
    return not (
        text.lstrip().startswith(_BEGIN) or text.startswith(_CHAINED) or _OTHERS.match(text)
    )


def _passage(rank: int | None, frames: Sequence[_Line], message: Sequence[_Line]) -> Passage:
    texts = [line.text for line in frames]
    last = max((n for n, text in enumerate(texts) if _FILE.match(text)), default=None)
    place = [text for text in texts[last:] if text.strip(" ^~")] if last is not None else []
    told = [line.text for line in message]
    at = max((line.at for line in (*frames, *message)), default=0)
    shown = (*place[:2], *told)
    return Passage(at, rank, "\n".join(told), "\n".join(texts), tuple(map(cut, shown)))


def _joined(earlier: Passage, later: Passage) -> Passage:
    """The chain up to `later`, whose lines are the ones for people."""
    told = f"{earlier.told}\n{later.told}"
    frames = f"{earlier.frames}\n{later.frames}"
    return Passage(later.at, later.rank, told, frames, later.lines)
