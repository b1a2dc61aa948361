"""What the store holds for one run, and the two ways to change it: add a checkpoint, drop some."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from pod.rundir import RunDir
from pod.store import manifest, state
from pod.store.manifest import Manifest
from pod.store.places import Place, Source, StoreError


class Contents:
    """The stored checkpoints of a run by step, as far as this process knows.

    After a failure nothing is known any more: `manifests` looks again, and removes what was left
    half-done.
    """

    def __init__(self, run_dir: RunDir, place: Place, run: str) -> None:
        self.run_dir = run_dir
        self.place = place
        self.run = run
        self._manifests: dict[int, Manifest] | None = None
        self._checked = False

    def manifests(self) -> dict[int, Manifest]:
        """The complete checkpoints; raises StoreError when the place does not work."""
        if self._manifests is None:
            shutil.rmtree(self._hold, ignore_errors=True)
            if not self._checked:
                self.place.check()
                self._checked = True
            self._tidy()
            names = self.place.listing(f"{self.run}/")
            found = manifest.stored(self.place, self.run, names)
            self._remove_orphans(names, found.values())
            self._manifests = found
        return dict(self._manifests)

    def add(self, path: Path, checkpoint: Manifest, *, drop: Iterable[int] = ()) -> None:
        """Upload a checkpoint with the run's state, its manifest last, and drop others.

        Raises FileNotFoundError when rotation was faster, Changed when a file is not what was
        recorded, StoreError when the place does not work.
        """
        there = self.manifests()
        self._manifests = None
        try:
            files = self._sources(self._held(path, checkpoint), checkpoint)
            replaced = there.pop(checkpoint.step, None)
            steps = [step for step in drop if step in there]
            unwanted = [*self._all_names(there[step] for step in steps)]
            unwanted += [name for name in self._names(replaced) if name not in files]
            self.place.put(files, delete=unwanted)
        finally:
            shutil.rmtree(self._hold, ignore_errors=True)
        self._now({**there, checkpoint.step: checkpoint}, steps)

    def drop(self, steps: Iterable[int]) -> None:
        """Drop checkpoints; the state that goes up with it says why, if an alarm was the reason."""
        there = self.manifests()
        self._manifests = None
        gone = [step for step in steps if step in there]
        try:
            self.place.put(self._state(), delete=self._all_names(there[step] for step in gone))
        finally:
            shutil.rmtree(self._hold, ignore_errors=True)
        self._now(there, gone)

    def _now(self, there: dict[int, Manifest], dropped: list[int]) -> None:
        if dropped:
            self._tidy()
        self._manifests = {step: found for step, found in there.items() if step not in dropped}

    def _tidy(self) -> None:
        """Storage that can't be freed costs money, but no checkpoint must wait for that."""
        try:
            self.place.tidy(f"{self.run}/")
        except StoreError as error:
            print(f"axolotl-runner: {error}", flush=True)

    def _remove_orphans(self, names: dict[str, int], complete: Iterable[Manifest]) -> None:
        known = set(self._all_names(complete))
        known |= {state.name_of(self.run, file) for file in state.FILES}
        orphans = [name for name in names if name not in known and not self._is_model(name)]
        if orphans:
            self.place.delete(sorted(orphans, key=lambda name: not name.endswith(".json")))

    def _is_model(self, name: str) -> bool:
        """A trained model beside the checkpoints (pod.rescue) is no leftover of an upload."""
        return name.startswith((f"{self.run}/model/", f"{self.run}/model.json"))

    def _sources(self, held: Path, checkpoint: Manifest) -> dict[str, Source]:
        """The state first, the manifest last."""
        files = self._state()
        folder = manifest.folder_name(self.run, checkpoint.step)
        for name, fact in checkpoint.files.items():
            files[f"{folder}/{name}"] = Source(held / name, fact.sha256)
        text = self._hold / "manifest.json"
        text.write_text(checkpoint.text(), encoding="utf-8")
        return {**files, manifest.manifest_name(self.run, checkpoint.step): Source(text)}

    def _state(self) -> dict[str, Source]:
        copies = state.snapshot(self.run_dir, self._hold / "state")
        return {state.name_of(self.run, name): Source(copy) for name, copy in copies.items()}

    def _held(self, path: Path, checkpoint: Manifest) -> Path:
        """Hard links to the checkpoint's files, where rotation does not look; those that the ledger
        holds in `kept/` are as good. On volumes without hard links the folder itself.
        """
        target = self._hold / path.name
        for source in (path, self.run_dir.kept / path.name):
            found = manifest.of_checkpoint(source)
            if found is None or found.identity != checkpoint.identity:
                continue
            try:
                return _hard_linked(source, target, checkpoint)
            except FileNotFoundError:
                shutil.rmtree(target, ignore_errors=True)
        raise FileNotFoundError(path)

    def _all_names(self, checkpoints: Iterable[Manifest]) -> list[str]:
        """Their files, all manifests first: in that order they are deleted."""
        every = list(checkpoints)
        manifests = [manifest.manifest_name(self.run, each.step) for each in every]
        return manifests + [name for each in every for name in self._names(each)]

    def _names(self, checkpoint: Manifest | None) -> list[str]:
        if checkpoint is None:
            return []
        folder = manifest.folder_name(self.run, checkpoint.step)
        return [f"{folder}/{name}" for name in checkpoint.files]

    @property
    def _hold(self) -> Path:
        return self.run_dir.path / "mirror"


def _hard_linked(source: Path, target: Path, checkpoint: Manifest) -> Path:
    for name in checkpoint.files:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source / name, target / name)
        except FileNotFoundError:
            raise
        except OSError:  # another file system, or one without links
            return source
    return target
