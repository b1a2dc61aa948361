"""Real git repositories for tests, with a fixed author and no settings of this machine."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from runner.push.git import Git

TASK = "base_model: x\ndatasets: [{path: data.jsonl, type: alpaca}]\nlearning_rate: 0.001\n"
ZERO = "0" * 40
MAIN = "refs/heads/main"
_CLEAN = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_AUTHOR_NAME": "x",
    "GIT_AUTHOR_EMAIL": "x@example.org",
    "GIT_COMMITTER_NAME": "x",
    "GIT_COMMITTER_EMAIL": "x@example.org",
}


@dataclass(frozen=True)
class History:
    """A repository with a working tree, on the branch main."""

    folder: Path

    @classmethod
    def new(cls, folder: Path) -> History:
        """An empty one."""
        folder.mkdir(parents=True)
        made = cls(folder)
        made.git("init", "-q", "-b", "main")
        return made

    def git(self, *arguments: str) -> str:
        """Run git and return what it says."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.folder,
            env={**clean, **_CLEAN},
            check=True,
            capture_output=True,
        )
        return os.fsdecode(done.stdout).strip()

    def write(self, path: str, text: str = TASK) -> None:
        """Write a file."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def commit(self, message: str = "x") -> str:
        """Commit everything in the folder."""
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.head

    def add(self, *paths: str, text: str = TASK, message: str = "x") -> str:
        """Write the same text to these files and commit."""
        for path in paths:
            self.write(path, text)
        return self.commit(message)

    @property
    def head(self) -> str:
        """The commit that is checked out."""
        return self.git("rev-parse", "HEAD")

    @property
    def plain(self) -> Git:
        """As the product sees it."""
        return Git(self.folder)
