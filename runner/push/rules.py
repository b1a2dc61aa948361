"""Which pushes start runs: branches and paths, as patterns from the environment.

AXR_PUSH_BRANCHES   default `main`
AXR_PUSH_PATHS      default `configs/**/*.yml configs/**/*.yaml`

Patterns are separated by blanks. `*` and `?` stay within a folder, `**` goes through folders, a
leading `!` takes away what came before; the last pattern that fits decides.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

BRANCHES, PATHS = "AXR_PUSH_BRANCHES", "AXR_PUSH_PATHS"
HEADS = "refs/heads/"


@dataclass(frozen=True)
class Rules:
    """What counts; the defaults are the documented ones."""

    branches: tuple[str, ...] = ("main",)
    paths: tuple[str, ...] = ("configs/**/*.yml", "configs/**/*.yaml")

    def wants_branch(self, ref: str) -> bool:
        """True for the full name of a branch that counts; never for a tag."""
        return ref.startswith(HEADS) and _fits(self.branches, ref.removeprefix(HEADS))

    def wants_path(self, path: str) -> bool:
        """True for the path of what may be a task file."""
        return _fits(self.paths, path)


def read_rules(environment: Mapping[str, str] = os.environ) -> Rules:
    """The rules of this process."""
    branches = tuple(environment.get(BRANCHES, "").split())
    paths = tuple(environment.get(PATHS, "").split())
    return Rules(branches or Rules.branches, paths or Rules.paths)


def matches(pattern: str, path: str) -> bool:
    """True when the path fits the pattern (without a leading `!`)."""
    return _expression(pattern).fullmatch(path) is not None


def _fits(patterns: tuple[str, ...], name: str) -> bool:
    found = False
    for pattern in patterns:
        if matches(pattern.removeprefix("!"), name):
            found = not pattern.startswith("!")
    return found


@functools.cache
def _expression(pattern: str) -> re.Pattern[str]:
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    pieces = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    return re.compile("".join(parts.get(piece) or re.escape(piece) for piece in pieces), re.DOTALL)
