"""One look at a rented cloud serves every run: a hundred pods cost no more calls than one.

Each parent used to ask for its own pod every ten seconds, so calls grew with the pods until the
cloud answered 429. Now whoever finds the last listing too old makes a new one, under a lock, and
leaves it in `<AXR_HOME>/looks/<cloud>.json` for the others. Only good news is taken from it: a pod
that is missing there, or in trouble, is asked for by itself before anything is concluded.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from blocks.cloud import Cloud, Pod, PodPhase, PodStatus, Seen
from blocks.clouds import is_rented
from pod.rundir import write_json
from runner.errors import KeyRefused, TryAgain
from runner.home import home
from runner.locks import LockHeld, hold

# Seconds. A parent looks at its pod every ten, one that waits for its pod every five.
FRESH = 9.5
# While somebody else asks the cloud, which may take its time, a listing as old as this will do.
USABLE = 60.0
GOOD_NEWS = (PodPhase.QUEUED, PodPhase.STARTING, PodPhase.RUNNING)


def status_of(
    pod: Pod, cloud: Cloud, *, now: Callable[[], float] = time.time, folder: Path | None = None
) -> PodStatus:
    """Phase and telemetry of a pod, at most FRESH seconds old; errors as of `Cloud.status`."""
    if is_rented(pod.cloud):
        found = _survey(cloud, now, folder or home().path / "looks").get(pod.id)
        if found is not None and found.status.phase in GOOD_NEWS:
            return found.status
    return cloud.status(pod)


def find(
    pod: Pod, cloud: Cloud, *, now: Callable[[], float] = time.time, folder: Path | None = None
) -> Pod | None:
    """The pod at its present price; errors as of `Cloud.find`."""
    if is_rented(pod.cloud):
        found = _survey(cloud, now, folder or home().path / "looks").get(pod.id)
        if found is not None:
            return found.pod
    return cloud.find(pod.run)


def _survey(cloud: Cloud, now: Callable[[], float], folder: Path) -> Mapping[str, Seen]:
    """The newest listing: the one that is there while it is fresh, else a new one."""
    file = folder / f"{cloud.name}.json"
    kept = _kept(file, now(), FRESH)
    if kept is None:
        try:
            with hold(file.with_suffix(".lock")):
                kept = _kept(file, now(), FRESH) or _look(cloud, now(), file)
        except LockHeld:
            kept = _kept(file, now(), USABLE)
    if kept is None:
        raise TryAgain(f"another run is asking {cloud.name}")
    if refused := kept.get("refused"):
        raise (KeyRefused if kept["key"] else TryAgain)(refused)
    return {each["pod"]["id"]: _seen(each) for each in kept["pods"]}


def _look(cloud: Cloud, now: float, file: Path) -> dict[str, Any]:
    """Ask the cloud. A refusal is kept as well: the others need not hear it too."""
    made: dict[str, Any]
    try:
        made = {"t": now, "pods": [_plain(seen) for seen in cloud.survey()]}
    except (TryAgain, KeyRefused) as refused:
        made = {"t": now, "refused": str(refused), "key": isinstance(refused, KeyRefused)}
    write_json(file, made)
    return made


def _kept(file: Path, now: float, most: float) -> dict[str, Any] | None:
    """What was left there within the last `most` seconds; nothing from the future."""
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        return kept if 0 <= now - kept["t"] <= most else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _plain(seen: Seen) -> dict[str, Any]:
    pod = {**asdict(seen.pod), "created": seen.pod.created.isoformat()}
    return {"pod": pod, "status": asdict(seen.status)}


def _seen(plain: Mapping[str, Any]) -> Seen:
    pod = {**plain["pod"], "created": datetime.fromisoformat(plain["pod"]["created"])}
    status = {**plain["status"], "phase": PodPhase(plain["status"]["phase"])}
    return Seen(Pod(**pod), PodStatus(**status))
