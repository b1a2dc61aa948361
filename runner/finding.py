"""A remark on a task file with its place, and the error that carries the ones that stop a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from runner.errors import ConfigError


@dataclass(frozen=True)
class Finding:
    """One remark. Line and column count from 1; line 0 means the file as a whole."""

    line: int
    column: int
    key: str
    level: Literal["warn", "stop"]
    code: str
    message: str
    hint: str

    def sentence(self, name: str) -> str:
        """`name:line:column: what — what to do`, on one line."""
        place = f"{name}:{self.line}:{self.column}" if self.line else name
        return " ".join(f"{place}: {self.message} — {self.hint}".split())


class TaskFileError(ConfigError):
    """The task file can't be used; one line per reason, each also as a finding."""

    def __init__(self, name: str, findings: Iterable[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__("\n".join(finding.sentence(name) for finding in self.findings))


def stop(
    code: str, message: str, hint: str, *, key: str = "", at: tuple[int, int] = (0, 0)
) -> Finding:
    """A finding that ends the run before anything is rented; `at` is (line, column) from 1."""
    return Finding(*at, key, "stop", code, message, hint)


def warn(
    code: str, message: str, hint: str, *, key: str = "", at: tuple[int, int] = (0, 0)
) -> Finding:
    """A finding that the user should read; the run goes on."""
    return Finding(*at, key, "warn", code, message, hint)
