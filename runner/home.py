"""Where things lie on the control machine: one folder, `AXR_HOME`, default `.runner/` in the
repository.

prefect/   Prefect's home: its SQLite database, never the user's own ~/.prefect
pods/      one folder for each local pod
runs/      one folder for each run, linked as `runs/` in the repository
locks/     one file for each run, held by its parent as long as that lives
logs/      server, workers, keeper
control.json  pid and address of the running control side
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Home:
    """The folders below one `AXR_HOME`."""

    path: Path

    @property
    def prefect(self) -> Path:
        return self.path / "prefect"

    @property
    def pods(self) -> Path:
        return self.path / "pods"

    @property
    def runs(self) -> Path:
        return self.path / "runs"

    @property
    def locks(self) -> Path:
        return self.path / "locks"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def control(self) -> Path:
        return self.path / "control.json"

    def run(self, run: str) -> Path:
        """The folder of one run; made when it is missing."""
        folder = self.runs / run
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def relative(self, path: Path) -> str:
        """`path` as it is shown to users: relative to the repository when it lies inside or below
        the home.
        """
        if path.is_relative_to(self.runs):
            return str(Path("runs") / path.relative_to(self.runs))
        return str(path.relative_to(REPOSITORY)) if path.is_relative_to(REPOSITORY) else str(path)

    def link_runs(self) -> None:
        """Link `runs/` of the repository to this home's runs, unless something else is there."""
        link = REPOSITORY / "runs"
        self.runs.mkdir(parents=True, exist_ok=True)
        if link.is_symlink() and Path(os.readlink(link)) != self.runs:
            link.unlink()
        if not link.exists() and not link.is_symlink():
            link.symlink_to(self.runs)


def home() -> Home:
    """The home of this process: `AXR_HOME` or `.runner/` in the repository."""
    return Home(Path(os.environ.get("AXR_HOME") or REPOSITORY / ".runner").resolve())


def axolotl_environment() -> Path:
    """The trainer's own Python environment: `AXR_AXOLOTL_ENV` or `.venv-axolotl/` in the
    repository.
    """
    return Path(os.environ.get("AXR_AXOLOTL_ENV") or REPOSITORY / ".venv-axolotl").resolve()
