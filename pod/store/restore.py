"""Bring a run's newest healthy checkpoint from the store onto this pod's volume.

    python -m pod.store.restore --run-dir DIR --run RUN --url URL [--before STEP] [--attempt N]

prints {"step": N or null} or {"error": text} as its last line. Each file is compared with its hash;
a checkpoint with a wrong or missing one is passed over for the next older one. It appears in `out/`
by one rename, with its ledger entry, so that pod.ledger takes it like one of its own; a pod that
dies in the middle leaves files in `restore/`, which are used the next time. What is on the volume
and as new is never touched.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path

from pod import events, ledger
from pod.ledger import LEDGER
from pod.rundir import RunDir, sha256_of, write_json
from pod.store import state
from pod.store.choice import condemned
from pod.store.manifest import Manifest, folder_name, stored
from pod.store.places import Place, StoreError, open_place

SPARE_BYTES = 256 * 1024 * 1024


def restore(
    run_dir: RunDir,
    place: Place,
    run: str,
    *,
    before: int | None = None,
    attempt: int | None = None,
) -> int | None:
    """Fetch the newest healthy stored checkpoint with step < `before` (an alarm's onset).

    `attempt` is the one that will go on from it (see pod.store.state.merge). Returns the step, None
    when the store has none or the volume has one that is as new. Raises StoreError when the store
    can't be read or the disk has no room: not a reason to start over.
    """
    place.check()
    names = place.listing(f"{run}/")
    every = stored(place, run, names)
    if not every:
        return None
    known = _fetch_state(run_dir, place, run, names)
    for manifest in _candidates(run_dir, every, known, before):
        if _is_here(run_dir, manifest, before):
            return None
        flaw = _fetch(run_dir, place, run, manifest)
        if flaw is None:
            state.merge(
                run_dir, known, manifest, attempt=attempt
            )  # first: what is here is not fetched again
            _put_in_place(run_dir, manifest)
            shutil.rmtree(_aside(run_dir), ignore_errors=True)
            return manifest.step
        _say(f"checkpoint-{manifest.step} of the store is passed over: {flaw}")
    return None


def _candidates(
    run_dir: RunDir, every: dict[int, Manifest], known: Path, before: int | None
) -> list[Manifest]:
    """In the order of pod.ledger.pick: the one right before an onset comes last."""
    told = [*events.read(known / "events.jsonl")[0], *events.read(run_dir.events)[0]]
    bad = condemned(run_dir, told, every)
    good = [
        manifest
        for step, manifest in every.items()
        if manifest.health == "healthy" and step not in bad and (before is None or step < before)
    ]
    return sorted(good, key=lambda m: (before is not None and m.step == before - 1, -m.step))


def _is_here(run_dir: RunDir, manifest: Manifest, before: int | None) -> bool:
    """Whether the volume has a checkpoint that is as good as this one."""
    last = before is not None and manifest.step == before - 1
    fitting = [
        checkpoint
        for checkpoint in ledger.checkpoints(run_dir)
        if checkpoint.health != "suspect"
        and (before is None or checkpoint.step < (before if last else before - 1))
    ]
    newest = max(fitting, key=lambda checkpoint: checkpoint.step, default=None)
    if newest is None or newest.step < manifest.step:
        return False
    return newest.step > manifest.step or ledger.verify(newest.path) is None


def _fetch_state(run_dir: RunDir, place: Place, run: str, names: dict[str, int]) -> Path:
    folder = _aside(run_dir) / "state"
    folder.mkdir(parents=True, exist_ok=True)
    for file in state.FILES:
        name = state.name_of(run, file)
        if name in names:
            place.get(name, folder / file)
    return folder


def _fetch(run_dir: RunDir, place: Place, run: str, manifest: Manifest) -> str | None:
    """Download what is not here yet; returns what is wrong with it, None if nothing is."""
    folder = _folder(run_dir, manifest)
    missing = {}
    for name, fact in manifest.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or sha256_of(path) != fact.sha256:
            missing[name] = fact
    needed = sum(fact.bytes for fact in missing.values())
    free = shutil.disk_usage(folder).free
    if needed + SPARE_BYTES > free:
        raise StoreError(
            f"checkpoint-{manifest.step} of {place.url} needs {needed / 1e9:.1f} GB and the volume "
            f"has {free / 1e9:.1f} GB free; raise volume_in_gb"
        )
    for name, fact in missing.items():
        try:
            place.get(f"{folder_name(run, manifest.step)}/{name}", folder / name)
        except KeyError:
            return f"{name} is missing"
        if sha256_of(folder / name) != fact.sha256:
            return f"{name} is not what was stored"
    return None


def _put_in_place(run_dir: RunDir, manifest: Manifest) -> None:
    folder = _folder(run_dir, manifest)
    write_json(folder / LEDGER, manifest.entry())
    target = run_dir.out / f"checkpoint-{manifest.step}"
    if target.exists():  # cut off or damaged, else it would have been as new
        run_dir.quarantine.mkdir(parents=True, exist_ok=True)
        target.rename(_unused(run_dir.quarantine / f"{target.name}.damaged"))
    run_dir.out.mkdir(parents=True, exist_ok=True)
    folder.rename(target)


def _unused(path: Path) -> Path:
    number = 1
    free = path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}.{number}")
    return free


def _aside(run_dir: RunDir) -> Path:
    return run_dir.path / "restore"


def _folder(run_dir: RunDir, manifest: Manifest) -> Path:
    """Of this checkpoint only: another attempt may have saved the same step."""
    return _aside(run_dir) / f"checkpoint-{manifest.step}.attempt-{manifest.attempt}"


def _say(text: str) -> None:
    print(f"axolotl-runner: {text}", file=sys.stderr, flush=True)


def main() -> None:
    """Restore, and print the outcome for the process that waits for it."""
    parser = argparse.ArgumentParser(description="fetch a run's newest healthy checkpoint")
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument("--url", required=True)
    parser.add_argument("--before", type=int)
    parser.add_argument("--attempt", type=int)
    given = parser.parse_args()
    try:
        place = open_place(given.url, os.environ)
        step = place and restore(
            RunDir(given.run_dir),
            place,
            given.run,
            before=given.before,
            attempt=given.attempt,
        )
        outcome: dict[str, object] = {"step": step}
    except StoreError as error:
        outcome = {"error": str(error)}
    print(json.dumps(outcome), flush=True)


if __name__ == "__main__":
    main()
