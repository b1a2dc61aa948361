"""The mirror: one process of a pod that brings healthy checkpoints into the store.

    python -m pod.store.mirror --run-dir DIR --run RUN --url URL

It follows the run's folder and uploads one checkpoint at a time, the newest first. Nothing it meets
disturbs the training: it is nice, and a failure is told and tried again later. What it does is in
two files of the run's folder:

    store.jsonl  one line per upload: {kind: "store", t, attempt, step, ok, seconds, bytes, message}
    store.json   how it stands: {url, stored, waiting, trouble, t}; steps, and the last failure

On SIGTERM it has FINISH_S seconds for the upload in hand; without its manifest that one is as if it
had never been begun. It ends by itself when the run is published and nothing is left to do.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from pod import events
from pod.rundir import RunDir, write_json
from pod.store import choice
from pod.store.contents import Contents
from pod.store.manifest import Manifest
from pod.store.places import Changed, StoreError, open_place

POLL_S = 2.0
FIRST_WAIT_S = 2.0
MOST_WAIT_S = 300.0
FINISH_S = 10.0
NICENESS = 10
LOCK = "mirror.lock"


class Mirror:
    """Keeps the store of one run as it should be; `once` does the next thing that is due."""

    def __init__(
        self,
        contents: Contents,
        *,
        keep: int = choice.KEEP,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.contents = contents
        self.run_dir = contents.run_dir
        self.keep = keep
        self.clock = clock
        self._unusable: set[str] = set()
        self._follower = events.Follower(self.run_dir.events)
        self._standing: dict[str, object] = {}

    def follow(self, stop: threading.Event) -> None:
        """Do what is due until told to stop, or until the run is published."""
        failures = 0
        while not stop.is_set():
            try:
                busy = self.once()
                failures = 0
            except Exception as error:  # whatever it is: the training goes on, and so do we
                failures += 1
                self._failed(error)
                wait = min(MOST_WAIT_S, FIRST_WAIT_S * 2 ** min(failures - 1, 10))
                stop.wait(wait * random.uniform(0.5, 1.0))
                continue
            if not busy:
                if self.run_dir.finished.exists():
                    return
                stop.wait(POLL_S)

    def once(self) -> bool:
        """Upload the newest checkpoint that is missing, or drop what is not wanted any more.

        Returns False when there was nothing to do. Raises StoreError when the place does not work.
        """
        there = self.contents.manifests()
        self._follower.poll()
        local = self._local()
        bad = choice.condemned(self.run_dir, self._follower.seen, there)
        good = {step: found for step, found in there.items() if step not in bad}
        healthy = {*good, *local}
        proven = choice.proven_step(self._follower.seen)
        wanted = choice.wanted(healthy, proven=proven, keep=self.keep)
        due = sorted(s for s in wanted & set(local) if not _same(good.get(s), local[s][1]))
        drop = [step for step in there if step in bad or step not in wanted]
        self._write(stored=sorted(there), waiting=due)
        busy = bool(due or drop)
        if due:
            newest = due.pop()
            self._upload(*local[newest], [step for step in drop if step != newest])
        elif drop:
            self.contents.drop(drop)
        self._write(stored=sorted(self.contents.manifests()), waiting=due, trouble=None)
        return busy

    def _local(self) -> dict[int, tuple[Path, Manifest]]:
        found = choice.recorded(self.run_dir)
        manifests = {step: described for step, (_, described) in found.items()}
        bad = choice.condemned(self.run_dir, self._follower.seen, manifests)
        return {
            step: (path, described)
            for step, (path, described) in found.items()
            if step not in bad and described.text() not in self._unusable
        }

    def _upload(self, path: Path, checkpoint: Manifest, drop: list[int]) -> None:
        began = self.clock()
        try:
            self.contents.add(path, checkpoint, drop=drop)
        except (Changed, FileNotFoundError) as error:
            self._unusable.add(checkpoint.text())
            gone = isinstance(error, FileNotFoundError)
            message = "deleted before it was stored" if gone else str(error)
            self._tell(checkpoint, ok=False, began=began, message=message)
        except Exception as error:
            self._tell(checkpoint, ok=False, began=began, message=str(error))
            raise
        else:
            self._tell(checkpoint, ok=True, began=began, message="")

    def _tell(self, checkpoint: Manifest, *, ok: bool, began: float, message: str) -> None:
        events.append(
            self.run_dir.path / "store.jsonl",
            "store",
            checkpoint.attempt,
            checkpoint.step,
            ok=ok,
            seconds=round(self.clock() - began, 3),
            bytes=checkpoint.size,
            message=message,
        )

    def _failed(self, error: Exception) -> None:
        text = str(error) if isinstance(error, StoreError) else f"{type(error).__name__}: {error}"
        print(f"axolotl-runner: {text}", flush=True)
        self._write(trouble=text)

    def _write(self, **changes: object) -> None:
        """Write store.json when something has changed."""
        start: dict[str, object] = {
            "url": self.contents.place.url,
            "stored": [],
            "waiting": [],
            "trouble": None,
        }
        now = {**start, **self._standing, **changes}
        if now != self._standing:
            self._standing = now
            write_json(self.run_dir.path / "store.json", {**now, "t": time.time()})


def _same(stored: Manifest | None, local: Manifest) -> bool:
    return stored is not None and stored.identity == local.identity


def _stop_soon(stop: threading.Event) -> None:
    """Wake the mirror, and end it by force when the upload in hand takes too long."""
    if not stop.is_set():
        stop.set()
        timer = threading.Timer(FINISH_S, os._exit, (0,))
        timer.daemon = True
        timer.start()


def main() -> None:
    """Mirror until told to stop; at once when another mirror of this run lives."""
    parser = argparse.ArgumentParser(description="mirror a run's checkpoints into its store")
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument("--url", required=True)
    given = parser.parse_args()
    run_dir = RunDir(given.run_dir)
    run_dir.path.mkdir(parents=True, exist_ok=True)
    with (run_dir.path / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        place = open_place(given.url, os.environ)
        if place is None:
            return
        os.nice(NICENESS)
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: _stop_soon(stop))
        Mirror(Contents(run_dir, place, given.run)).follow(stop)


if __name__ == "__main__":
    main()
