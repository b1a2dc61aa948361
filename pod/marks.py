"""What the guard leaves on the volume, `<AXR_VOLUME>/guard-<pod>/`: read by whoever starts again.

    access.json    {state: proved|refused|unknown, why, t}: may a training start?
    began.json     {t}: the guard's first start on this pod; stop_after and terminate_after count
                   from then
    lease.json     {value, seen, ends_at}: the last word of the control side (pod.lease)
    ended.json     {why, t}: this pod is over; a container that is started again ends itself
    rescue.json    {ok, why, t}: where the only copy of a model went, or why it could not go

The folder is the pod's, not the run's: a run that is resumed elsewhere finds no mark of an old pod
on a volume that both mount. Times are Unix seconds of the pod's clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pod.rundir import read_json, write_json


@dataclass(frozen=True)
class Marks:
    """The marks of one pod, in its folder."""

    path: Path

    def read(self, name: str) -> dict[str, Any] | None:
        """What the mark says; None when it is not there or damaged."""
        try:
            return read_json(self.path / f"{name}.json")
        except (OSError, ValueError):
            return None

    def write(self, name: str, **facts: Any) -> None:
        """Replace the mark. A volume that is full or gone must not stop the guard: it is told."""
        try:
            write_json(self.path / f"{name}.json", facts)
        except OSError as error:
            print(f"guard: {name}.json can't be written: {error}", flush=True)

    def remove(self, name: str) -> None:
        """Take the mark away; a missing one is fine."""
        try:
            (self.path / f"{name}.json").unlink(missing_ok=True)
        except OSError as error:
            print(f"guard: {name}.json can't be removed: {error}", flush=True)

    def began(self, now: float) -> float:
        """When the guard first started on this pod: now, if this is the first time."""
        known = self.read("began")
        if known is None or not isinstance(known.get("t"), int | float):
            known = {"t": now}
            self.write("began", **known)
        return float(known["t"])


def marks_of(environment: Mapping[str, str]) -> Marks:
    """The marks of the pod that these variables belong to."""
    return Marks(Path(environment["AXR_VOLUME"]) / f"guard-{environment['AXR_POD']}")
