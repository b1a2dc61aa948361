"""Bring a run's best model from this pod to where it survives the pod.

    python -m pod.rescue --run-dir DIR --run RUN [--store-only]

prints {"saved": text} or {"error": text} as its last line. It runs in the worker's Python. The best
is the model of a training that reached its end, else the newest healthy checkpoint. It goes to the
run's checkpoint store, else to the private hub repository `<user>/axr-rescue-<run>`, which has the
form of a store: named as `checkpoint_store`, a resumed run goes on from it.

    <run>/model/…         the trained model (pod.store.model)
    <run>/checkpoint-N/…  as any store has it

What is there already is not sent again, so a rescue may be repeated. A mirror that still works on
the store is waited for, then ended: two processes must not change one store.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pod import events, ledger
from pod.completed import why_not_complete
from pod.rundir import RunDir
from pod.store import manifest
from pod.store.contents import Contents
from pod.store.hub import HubPlace
from pod.store.manifest import Manifest
from pod.store.model import store_model
from pod.store.places import Place, StoreError, open_place
from pod.store.turn import without_mirror
from runner.taskfile import TaskFile, parse_task_file

# Beside a model in `out/`: what one loads or shares has no checkpoints and no trainer's state.
LEFT_OUT = ("debug.log", "trainer_state.json", "training_args.bin")


class RescueFailed(RuntimeError):
    """What only this pod has is nowhere else; the text is the one reason."""


@dataclass(frozen=True)
class Best:
    """What is worth saving: the files of a trained model, a checkpoint, or neither."""

    model: dict[str, Path]
    checkpoint: tuple[Path, Manifest] | None


def rescue(
    run_dir: RunDir,
    run: str,
    environment: Mapping[str, str] = os.environ,
    *,
    store_only: bool = False,
) -> str:
    """Bring the best model to safety; one line that says where it is, or why there is nothing.

    `store_only` leaves the hub out. Raises RescueFailed when it is still only here.
    """
    task = _task(run_dir)
    if task is None:
        return "nothing: no task file is here, so nothing was trained"
    if task.axolotl.get("hub_model_id") and run_dir.finished.exists():
        return f"nothing: the model is published as {task.axolotl['hub_model_id']}"
    settings = task.settings
    url = environment.get("AXR_STORE") or settings.checkpoint_store
    if settings.network_volume and not store_only:
        return f"nothing: the network volume {settings.network_volume} outlives the pod"
    best = find_best(run_dir)
    if not best.model and best.checkpoint is None:
        return "nothing: there is neither a trained model nor a healthy checkpoint"
    with _alone(run_dir.path / "rescue.lock"):
        return _to_first(run_dir, run, best, _places(url, run, environment, store_only=store_only))


def find_best(run_dir: RunDir) -> Best:
    """What of this run is worth saving, by the evidence on the volume."""
    every, _ = events.read(run_dir.events)
    attempt = max((event["attempt"] for event in every), default=0)
    model = _files(run_dir.path / "model")
    if not model and why_not_complete(run_dir) is None:
        model = _files(run_dir.out)
    return Best(model, _best_checkpoint(run_dir, every, attempt))


def _places(
    url: str | None, run: str, environment: Mapping[str, str], *, store_only: bool
) -> Iterator[tuple[bool, Callable[[], Place | None]]]:
    """The store of the run, then the hub, each opened when it is its turn; True is the store."""
    if url:
        yield True, lambda: open_place(url, environment)
    if not store_only:
        yield False, lambda: _rescue_repository(run, environment)


def _rescue_repository(run: str, environment: Mapping[str, str]) -> Place:
    try:
        owner = HubPlace("axr/rescue", "", environment).owner()
    except StoreError as error:
        raise StoreError(f"no repository of the hub can be made for it: {error}") from error
    return HubPlace(f"{owner}/axr-rescue-{run}", "", environment)


def _to_first(
    run_dir: RunDir,
    run: str,
    best: Best,
    places: Iterator[tuple[bool, Callable[[], Place | None]]],
) -> str:
    """Save to the first place that works."""
    failures = []
    for is_store, opened in places:
        try:
            place = opened()
            if place is not None:
                # A rescue repository needs no checkpoint beside the model.
                return _put_away(run_dir, run, best, place, model_only=not is_store)
        except (StoreError, OSError) as error:
            failures.append(str(error))
    raise RescueFailed("; ".join(failures) or "there is no store outside of the pod to bring it to")


def _put_away(run_dir: RunDir, run: str, best: Best, place: Place, *, model_only: bool) -> str:
    said = []
    with without_mirror(run_dir, None if best.checkpoint is None else best.checkpoint[1].step):
        if best.model:
            fresh = store_model(place, run, best.model)
            said.append(f"{'' if fresh else 'already '}the model in {place.url}/{run}/model")
        if best.checkpoint is not None and not (best.model and model_only):
            path, described = best.checkpoint
            contents = Contents(run_dir, place, run)
            stored = contents.manifests().get(described.step)
            fresh = stored is None or stored.identity != described.identity
            if fresh:
                contents.add(path, described)
            said.append(f"{'' if fresh else 'already '}{path.name} in {place.url}/{run}")
    return ", ".join(said)


def _best_checkpoint(
    run_dir: RunDir, every: list[events.Event], attempt: int
) -> tuple[Path, Manifest] | None:
    """The newest that is healthy, verified by its hashes; one that its trainer had no time to
    record is recorded now.
    """
    onsets = [e["onset_step"] for e in every if e["kind"] == "alarm" and e["attempt"] == attempt]
    picked = ledger.pick(run_dir, before=min(onsets, default=None))
    if picked is None or picked.health == "suspect":
        return None
    if picked.health == "unrecorded":
        ledger.record(picked.path, step=picked.step, attempt=attempt or 1, health="healthy")
    described = manifest.of_checkpoint(picked.path)
    return None if described is None else (picked.path, described)


def _files(folder: Path) -> dict[str, Path]:
    """The files of a model by their names inside its folder."""
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {
        name: path
        for name, path in found.items()
        if name not in LEFT_OUT
        and not name.startswith(("checkpoint-", "runs/"))
        and not name.endswith(".tmp")
    }


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _task(run_dir: RunDir) -> TaskFile | None:
    try:
        text = run_dir.task_file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    return parse_task_file(text, run_dir.task_file.name)


def main() -> None:
    """Rescue, and print the outcome for the process that waits for it."""
    parser = argparse.ArgumentParser(description="save what only this pod has")
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument("--store-only", action="store_true")
    given = parser.parse_args()
    try:
        said = rescue(RunDir(given.run_dir), given.run, store_only=given.store_only)
        outcome = {"saved": said}
    except Exception as error:  # whatever it is: who waits must learn that nothing was saved
        text = str(error) if isinstance(error, RescueFailed) else f"{type(error).__name__}: {error}"
        print(f"axolotl-runner: rescue: {text}", file=sys.stderr, flush=True)
        outcome = {"error": text}
    print(json.dumps(outcome), flush=True)


if __name__ == "__main__":
    main()
