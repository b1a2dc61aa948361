"""One class of failure: how it is told, and what to do.

The wordings in the tables beside this are those of axolotl 0.19, torch 2.13, transformers 5.16,
datasets 4.8, huggingface_hub 1.17, wandb 0.31, pip and the kernel, most of them provoked with these
versions. A row matches when one of its patterns is found in the messages of an error. The order
matters twice: of several rows that match one error the first counts, so the special ones stand
above the general ones; and a `second_hand` row counts only where nothing else is told, because it
follows from another failure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from runner.errors import Outcome


@dataclass(frozen=True)
class Cause:
    """One class of failure.

    `advice` is one sentence and may name `{words}` that `words` find in the error's text, with what
    stands there when they don't. `final`: the same will happen on every machine until somebody
    changes something. `outcome` is the run's when no step was trained: `config_error` where it is
    the task file that must change. `frames` are patterns of the places in a traceback.
    """

    name: str
    advice: str
    patterns: tuple[str, ...] = ()
    frames: tuple[str, ...] = ()
    final: bool = False
    second_hand: bool = False
    outcome: Outcome = "crash"
    words: dict[str, tuple[str, str]] = field(default_factory=dict)

    def matches(self, told: str, frames: str = "") -> bool:
        """Whether an error with these messages, raised at these places, is of this class."""
        return any(_compiled(p).search(told) for p in self.patterns) or any(
            _compiled(p).search(frames) for p in self.frames
        )

    def place(self, frames: str) -> str | None:
        """The innermost place that makes an error of this class, None where the message does."""
        return next(
            (
                line
                for line in reversed(frames.split("\n"))
                if any(_compiled(p).search(line) for p in self.frames)
            ),
            None,
        )

    def advise(self, text: str) -> str:
        """What to do, with the words of this text."""
        found = {}
        for name, (pattern, default) in self.words.items():
            match = _compiled(pattern).search(text)
            found[name] = match[1].rstrip(".,'\"") if match else default
        return self.advice.format(**found)


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.MULTILINE)  # Python keeps the newest 512 of them
