"""Which checkpoints are worth their storage, and which must go whatever they cost."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from pod.events import Event, kept_steps
from pod.reporter import PROVEN_AFTER
from pod.rundir import RunDir
from pod.store.manifest import Manifest, of_checkpoint

KEEP = 3


def wanted(healthy: Collection[int], *, proven: int, keep: int = KEEP) -> set[int]:
    """The steps to hold in the store: the newest `keep`, the newest proven one, and the one that
    will be proven next, so that there is always a newer one to take its place.
    """
    newest = sorted(healthy)[-keep:]
    behind = max((step for step in healthy if step <= proven), default=None)
    ahead = min((step for step in healthy if step > proven), default=None)
    return {*newest, *(step for step in (behind, ahead) if step is not None)}


def proven_step(events: list[Event]) -> int:
    """The step of the log entry that enough entries came after without an alarm, 0 if none.

    Drifts take the longest to become certain, so their number of entries counts.
    """
    attempts = [event["attempt"] for event in events]
    last = max((event["step"] for event in events if event["kind"] == "step"), default=0)
    branch = kept_steps(events, before_attempt=max(attempts, default=0) + 1, up_to=last)
    return int(branch[-1 - max(PROVEN_AFTER)]["step"]) if len(branch) > max(PROVEN_AFTER) else 0


def recorded(run_dir: RunDir) -> dict[int, tuple[Path, Manifest]]:
    """The healthy checkpoints on the volume that have a ledger entry, by step."""
    found = {}
    for folder in (run_dir.kept, run_dir.out):  # the original before its link
        for path, manifest in _manifests(folder):
            if manifest.health == "healthy" and path.name == f"checkpoint-{manifest.step}":
                found[manifest.step] = (path, manifest)
    return found


def condemned(run_dir: RunDir, events: Iterable[Event], stored: Mapping[int, Manifest]) -> set[int]:
    """The stored steps that turned out bad later: quarantined here, or saved at or after the onset
    of an alarm by the attempt that raised it or one before.
    """
    bad = {manifest.identity for _, manifest in _manifests(run_dir.quarantine)}
    alarms = [(e["attempt"], e["onset_step"]) for e in events if e["kind"] == "alarm"]
    return {
        step
        for step, manifest in stored.items()
        if manifest.identity in bad
        or any(manifest.attempt <= attempt and step >= onset for attempt, onset in alarms)
    }


def _manifests(folder: Path) -> list[tuple[Path, Manifest]]:
    if not folder.is_dir():
        return []
    paths = sorted(path for path in folder.iterdir() if path.name.startswith("checkpoint-"))
    return [(path, manifest) for path in paths if (manifest := of_checkpoint(path)) is not None]
