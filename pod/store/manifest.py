"""The manifest of a stored checkpoint: its ledger entry, in a file of its own beside the files.

    <run>/checkpoint-N.json    {format, step, attempt, health, rung, factors, batch, t,
                                files: {name: {bytes, sha256}}}

It is written last and deleted first: a checkpoint without it does not exist, and one whose files
are not all listed with their sizes does not count either. A store may have been filled by anybody,
so names in it that lead elsewhere are refused.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from pod.ledger import LEDGER
from pod.rundir import read_json
from pod.store.places import Place

FORMAT = 1
HEALTHS = ("healthy", "suspect")
_MANIFEST = re.compile(r"checkpoint-(\d+)\.json")
_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class FileFact:
    """Size and hash of one file of a checkpoint."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What the ledger recorded of one checkpoint; `files` by their path inside of it."""

    step: int
    attempt: int
    health: str
    t: float
    files: Mapping[str, FileFact]
    rung: dict[str, Any] | None = None
    factors: dict[str, float] | None = None
    batch: dict[str, int] | None = None

    @property
    def identity(self) -> tuple[int, int, float]:
        """Tells two checkpoints of one step apart: attempts may each have saved it."""
        return self.step, self.attempt, self.t

    @property
    def size(self) -> int:
        """All its files together, in bytes."""
        return sum(fact.bytes for fact in self.files.values())

    def entry(self) -> dict[str, Any]:
        """The ledger entry, as pod.ledger reads it."""
        files = {name: {"bytes": f.bytes, "sha256": f.sha256} for name, f in self.files.items()}
        return {
            "step": self.step,
            "attempt": self.attempt,
            "health": self.health,
            "rung": self.rung,
            "factors": self.factors,
            "batch": self.batch,
            "t": self.t,
            "files": files,
        }

    def text(self) -> str:
        """The content of the manifest's file."""
        return json.dumps({"format": FORMAT, **self.entry()}, allow_nan=False) + "\n"


def parse(value: Mapping[str, Any]) -> Manifest:
    """The manifest in a ledger entry or a stored one; raises ValueError when it makes no sense."""
    try:
        if value.get("format", FORMAT) != FORMAT:
            raise ValueError(f"format {value['format']} is not known here")
        files = {str(name): _fact(fact) for name, fact in value["files"].items()}
        manifest = Manifest(
            step=int(value["step"]),
            attempt=int(value["attempt"]),
            health=str(value["health"]),
            t=float(value["t"]),
            files=files,
            rung=value.get("rung"),
            factors=value.get("factors"),
            batch=value.get("batch"),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no manifest of a checkpoint: {error!r}") from error
    strange = [name for name in files if not _stays_inside(name)]
    if strange:
        raise ValueError(f"{strange[0]!r} leads out of the checkpoint")
    if manifest.step < 1 or manifest.health not in HEALTHS or not files:
        raise ValueError(f"no checkpoint: step {manifest.step}, health {manifest.health!r}")
    return manifest


def of_checkpoint(folder: Path) -> Manifest | None:
    """The manifest that the ledger entry of a local checkpoint makes, None without one."""
    try:
        entry = read_json(folder / LEDGER)
        return None if entry is None else parse(entry)
    except (OSError, ValueError):
        return None


def folder_name(run: str, step: int) -> str:
    """Where the files of a checkpoint lie in the store."""
    return f"{run}/checkpoint-{step}"


def manifest_name(run: str, step: int) -> str:
    """Where its manifest lies."""
    return f"{folder_name(run, step)}.json"


def stored(place: Place, run: str, names: Mapping[str, int]) -> dict[int, Manifest]:
    """The complete checkpoints of a run by step; `names` is what the place lists for it.

    Raises StoreError when the place can't be read.
    """
    found = {}
    for name in names:
        match = _MANIFEST.fullmatch(name.removeprefix(f"{run}/"))
        if match is None:
            continue
        manifest = _read(place, name)
        if manifest is None or manifest.step != int(match[1]):
            continue
        folder = folder_name(run, manifest.step)
        if all(names.get(f"{folder}/{file}") == f.bytes for file, f in manifest.files.items()):
            found[manifest.step] = manifest
    return found


def _read(place: Place, name: str) -> Manifest | None:
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "manifest.json"
        try:
            place.get(name, target)
            return parse(read_json(target) or {})
        except (KeyError, ValueError):  # deleted meanwhile, or damaged: as good as none
            return None


def _fact(value: Mapping[str, Any]) -> FileFact:
    size, sha256 = int(value["bytes"]), str(value["sha256"])
    if size < 0 or not _HASH.fullmatch(sha256):
        raise ValueError(f"no size and hash of a file: {dict(value)}")
    return FileFact(size, sha256)


def _stays_inside(name: str) -> bool:
    path = PurePosixPath(name)
    plain = name == str(path) and "\\" not in name and "\0" not in name
    return plain and not path.is_absolute() and ".." not in path.parts and name != LEDGER
