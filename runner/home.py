"""Where things lie on the control machine: one folder, `AXR_HOME`, default `.runner/` in the
repository.

prefect/   Prefect's home: its SQLite database, never the user's own ~/.prefect
pods/      one folder for each local pod
cache/     what local pods fetch from the hub, and tokenised data
runs/      one folder for each run, linked as `runs/` in the repository
locks/     one file for each run, held by its parent as long as that lives
logs/      server, workers, keeper
outbox/    notices that wait to be sent
control.json  pid and address of the running control side
gateway.key   signs the tokens of rented pods
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
DEFAULT = REPOSITORY / ".runner"


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
    def cache(self) -> Path:
        return self.path / "cache"

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
    def outbox(self) -> Path:
        return self.path / "outbox"

    @property
    def control(self) -> Path:
        return self.path / "control.json"

    @property
    def gateway_key(self) -> Path:
        return self.path / "gateway.key"

    def run(self, run: str) -> Path:
        """The folder of one run; made when it is missing."""
        folder = self.runs / run
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def relative(self, path: Path) -> str:
        """`path` as reports hold it: relative to the home, such as `runs/<run>/model`."""
        return path.relative_to(self.path).as_posix()

    def shown(self, path: Path) -> str:
        """`path` as the terminal shows it: through the link `runs/` where that leads here."""
        link = REPOSITORY / "runs"
        if Path.cwd() == REPOSITORY and link.resolve() == self.runs.resolve():
            return self.relative(path)
        return str(path)

    def link_runs(self) -> None:
        """Link `runs/` of the repository to the runs of the default home, unless it is taken."""
        link = REPOSITORY / "runs"
        self.runs.mkdir(parents=True, exist_ok=True)
        if self.path == DEFAULT and not link.is_symlink() and not link.exists():
            link.symlink_to(self.runs.relative_to(REPOSITORY))


def home() -> Home:
    """The home of this process: `AXR_HOME` or `.runner/` in the repository."""
    return Home(Path(os.environ.get("AXR_HOME") or DEFAULT).resolve())


def axolotl_environment() -> Path:
    """The trainer's own Python environment: `AXR_AXOLOTL_ENV` or `.venv-axolotl/` in the
    repository.
    """
    return Path(os.environ.get("AXR_AXOLOTL_ENV") or REPOSITORY / ".venv-axolotl").resolve()
