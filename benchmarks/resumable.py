"""A long sweep of independent items that can be stopped at any time and goes on where it was.

Each finished item is one JSON file, written by rename; an item without a file is done from its
beginning. Ctrl-C, SIGTERM and the time limit (BENCH_LIMIT_SECONDS) end the items in work, whose
`sleep` raises Stopped; they leave no file.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pod.rundir import read_json, write_json

LIMIT, WORKERS = "BENCH_LIMIT_SECONDS", "BENCH_WORKERS"
STATE = Path(__file__).with_name("state")

Result = dict[str, Any]
Sleep = Callable[[float], None]


class Stopped(Exception):
    """The sweep ends before this item is done."""


@dataclass(frozen=True)
class Sweep:
    """The items of one part: their results lie in `folder`, `workers` are in work at a time
    (BENCH_WORKERS).
    """

    folder: Path
    workers: int = field(default_factory=lambda: int(os.environ.get(WORKERS) or 2))

    def done(self) -> dict[str, Result]:
        """The results so far, by the items' names."""
        found = {path.stem: read_json(path) for path in sorted(self.folder.glob("*.json"))}
        return {name: result for name, result in found.items() if result is not None}

    def work(
        self,
        names: Sequence[str],
        do: Callable[[str, Sleep], Result],
        report: Callable[[str], None],
        *,
        limit_s: float | None = None,
    ) -> None:
        """Do the items that have no result yet, in order, until all are done or the sweep is
        stopped.

        What `do` returns is the item's result; what it raises (but for Stopped) ends the sweep.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        todo = [name for name in names if name not in self.done()]
        report(f"{len(names) - len(todo)} of {len(names)} items are done already")
        stop = threading.Event()
        deadline = time.monotonic() + limit_s if limit_s is not None else None

        def sleep(seconds: float) -> None:
            late = deadline is not None and time.monotonic() > deadline
            if late or stop.wait(seconds):
                raise Stopped

        def one(name: str) -> Result:
            sleep(0)
            result = do(name, sleep)
            write_json(self.folder / f"{name}.json", result)
            return result

        with ThreadPoolExecutor(self.workers) as pool, _interrupts():
            running = {pool.submit(one, name): name for name in todo}
            try:
                for future in as_completed(running):
                    _tell(running[future], future, report)
            except BaseException:
                stop.set()
                pool.shutdown(cancel_futures=True)
                raise


def limit() -> float | None:
    """The time limit of the environment in seconds, None without one."""
    text = os.environ.get(LIMIT)
    return float(text) if text else None


def _tell(name: str, future: Future[Result], report: Callable[[str], None]) -> None:
    try:
        result: Mapping[str, Any] = future.result()
    except Stopped:
        return
    shown = {key: value for key, value in result.items() if value is not None}
    report(f"{name:24} {json.dumps(shown)}")


@contextmanager
def _interrupts() -> Iterator[None]:
    """SIGTERM counts as Ctrl-C, so that `timeout` leaves no training behind."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
