"""Where pods and network volumes are on this machine.

<home>/pods/<id>/volume/   the persistent volume     <home>/volumes/<id>/  a network volume
<home>/pods/<id>/root/     the container disk, HOME   <home>/logs/<id>.log  what the pod said
/tmp/<prefix>-<id>/        TMPDIR: short, since the path of a socket holds 107 bytes
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.emulators.containers import kill_all

_SHORT = Path("/tmp")


@dataclass(frozen=True)
class Folders:
    """The home of one emulator; no two of them share one. `variable` holds a pod's id on it."""

    home: Path
    ours: bool
    variable: str
    prefix: str

    @classmethod
    def at(cls, home: Path | None, *, variable: str, prefix: str) -> Folders:
        """In `home`, or in a new folder that goes with the emulator.

        Pods that an emulator before us left there (it was killed) are ended first.
        """
        where = home or Path(tempfile.mkdtemp(prefix=f"{prefix}-", dir=_SHORT))
        folders = cls(where, home is None, variable, prefix)
        for name in ("pods", "volumes", "logs"):
            (folders.home / name).mkdir(parents=True, exist_ok=True)
        for left in (folders.home / "pods").iterdir():
            kill_all(folders.mark(left.name))
            folders.remove(left.name)
        return folders

    def mark(self, pod: str) -> str:
        """What all processes of the pod have in their environment."""
        return f"{self.variable}={pod}"

    def root(self, pod: str) -> Path:
        return self.home / "pods" / pod / "root"

    def temporary(self, pod: str) -> Path:
        return _SHORT / f"{self.prefix}-{pod}"

    def log(self, pod: str) -> Path:
        return self.home / "logs" / f"{pod}.log"

    def volume(self, pod: str, network: str | None) -> Path:
        """The real folder of what is mounted."""
        if network is not None:
            return self.home / "volumes" / network
        return self.home / "pods" / pod / "volume"

    def wipe(self, pod: str) -> None:
        """An empty container disk; the volume stays as it is."""
        for folder in (self.root(pod), self.temporary(pod)):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        self.volume(pod, None).mkdir(exist_ok=True)

    def remove(self, pod: str) -> None:
        """All of the pod but its log."""
        shutil.rmtree(self.home / "pods" / pod, ignore_errors=True)
        shutil.rmtree(self.temporary(pod), ignore_errors=True)

    def close(self) -> None:
        """The whole home goes if nobody else gave it."""
        if self.ours:
            shutil.rmtree(self.home, ignore_errors=True)
