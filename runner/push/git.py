"""Git as a function: bytes in, bytes out, one error; it never asks a person and shows no secret."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runner.errors import RunnerError

COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


class GitError(RunnerError):
    """Git failed; the message holds its own words without secrets."""


@dataclass(frozen=True)
class Git:
    """Git in one repository.

    `environment` goes on top of this process's own, `secrets` are taken out of every message. What
    git gave to a hook of its own (GIT_DIR …) is left out: it would lead to another repository.
    """

    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def run(self, *arguments: str, stdin: bytes = b"", timeout: float = 60.0) -> bytes:
        """What git says; GitError when it fails or takes too long (s)."""
        try:
            done = subprocess.run(
                ["git", "-C", str(self.folder), *arguments],
                input=stdin,
                capture_output=True,
                timeout=timeout,
                env=self._environment(),
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise GitError(f"git {arguments[0]}: {self.shown(str(error))[:300]}") from None
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip()
            raise GitError(f"git {arguments[0]} failed: {self.shown(said)[:500]}")
        return done.stdout

    def text(self, *arguments: str, timeout: float = 60.0) -> str:
        """The same as text without the line's end; names that are no UTF-8 survive."""
        return os.fsdecode(self.run(*arguments, timeout=timeout)).strip()

    def has_commit(self, commit: str) -> bool:
        """True when this is the full name of a commit that is there."""
        return bool(COMMIT.fullmatch(commit)) and self.holds(
            "cat-file", "-e", f"{commit}^{{commit}}"
        )

    def holds(self, *arguments: str) -> bool:
        """True when git says yes (code 0), False when it says no or fails."""
        try:
            self.run(*arguments)
        except GitError:
            return False
        return True

    def shown(self, text: str) -> str:
        """The text without our secrets, and without whatever stands before @ in an address."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return re.sub(r"(\w+://)[^/@\s]+@", r"\1***@", text)

    def _environment(self) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        quiet = {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
        return {**own, **quiet, **self.environment}
