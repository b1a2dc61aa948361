"""Which points there are: at every call that a parent makes, everything that can go wrong there.

How many calls there are is told by a run that meets nothing; each series then goes on until a run
comes to its end without reaching its point. Points are done by processes of their own, since each
lives in a time of its own (see `crash_rig`).

A name is cloud-story-seam-mode-n, such as `vast-plain-cloud-dies-after-007`; cloud-story-none is
the run that meets nothing. Stories: `plain`, and `lost`, whose first pod is lost in mid-training.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from benchmarks.crash_faults import CANCELLED, DIES_AFTER, ERROR, LOST, MODES, Fault
from benchmarks.resumable import Result, Sleep, Sweep, limit
from runner.home import REPOSITORY

CLOUDS = ("runpod", "vast")
# (story, clouds, who is called, what goes wrong). To die before a call is to die after the one
# before it, so calls to Prefect have the latter alone; and how the control logic and Prefect go
# together does not depend on the cloud, so what is no death is spoilt on one.
SWEEPS: tuple[tuple[str, tuple[str, ...], str, tuple[str, ...]], ...] = (
    ("plain", CLOUDS, "cloud", MODES),
    ("lost", CLOUDS, "cloud", (LOST, DIES_AFTER)),
    ("plain", CLOUDS, "api", (DIES_AFTER,)),
    ("plain", ("runpod",), "api", (LOST, ERROR, CANCELLED)),
)
UNSPOILT = "none"
TASK = """\
base_model: HuggingFaceTB/SmolLM2-135M
datasets: [{{path: data.jsonl, type: alpaca}}]
hub_model_id: me/crash-sweep
runner:
  cloud: {cloud}
  gpu: NVIDIA RTX A5000
  max_hours: 5
  {more}
"""
MORE = {"plain": "budget: 50", "lost": "checkpoint_store: hf://me/crash-sweep"}
ENDS_WITHIN = 20.0


@dataclass(frozen=True)
class Point:
    """Where and how a run is spoilt."""

    cloud: str
    story: str
    fault: Fault | None

    @classmethod
    def of(cls, name: str) -> Point:
        """From its name."""
        cloud, story, rest = name.split("-", 2)
        if rest == UNSPOILT:
            return cls(cloud, story, None)
        seam, _, rest = rest.partition("-")
        mode, _, n = rest.rpartition("-")
        return cls(cloud, story, Fault(seam, mode, int(n)))

    @property
    def task_file(self) -> str:
        """What is trained: nothing; but it says what the run may do."""
        return TASK.format(cloud=self.cloud, more=MORE[self.story])


@dataclass
class Rigs:
    """Processes that do points; one is started when all others are at work."""

    _free: SimpleQueue[subprocess.Popen[str]] = field(default_factory=SimpleQueue)

    def do(self, name: str, sleep: Sleep) -> Result:
        """One point; what `sleep` raises ends the process that is at it."""
        try:
            rig = self._free.get_nowait()
        except Empty:
            rig = _start()
        try:
            assert rig.stdin is not None
            assert rig.stdout is not None
            print(name, file=rig.stdin, flush=True)
            while not select.select([rig.stdout], [], [], 0.2)[0]:
                sleep(0)
            line = rig.stdout.readline()
            if not line:
                raise RuntimeError(f"the process that was at {name} died")
            result: Result = json.loads(line)
        except BaseException:
            _end(rig)
            raise
        self._free.put(rig)
        return result

    def close(self) -> None:
        """End them all."""
        while True:
            try:
                _end(self._free.get_nowait())
            except Empty:
                return


def sweep_points(sweep: Sweep, report: Callable[[str], None]) -> None:
    """Do every point that has no result yet."""
    rigs = Rigs()
    try:
        unspoilt = [
            f"{cloud}-{story}-{UNSPOILT}" for story in ("plain", "lost") for cloud in CLOUDS
        ]
        sweep.work(unspoilt, rigs.do, report, limit_s=limit())
        while names := missing(sweep.done()):
            sweep.work(names, rigs.do, report, limit_s=limit())
            if not set(names) <= set(sweep.done()):
                return  # its time is over
    finally:
        rigs.close()


def missing(done: Mapping[str, Result]) -> list[str]:
    """The points that are left: of each series as many as there were calls, and beyond these one
    more after each that was reached; empty before the unspoilt runs are there.
    """
    left = []
    for story, clouds, seam, modes in SWEEPS:
        for cloud in clouds:
            unspoilt = done.get(f"{cloud}-{story}-{UNSPOILT}")
            for mode in modes if unspoilt else ():
                assert unspoilt is not None
                series = f"{cloud}-{story}-{seam}-{mode}"
                left += _missing_of(series, int(unspoilt["calls"][seam]), done)
    return left


def _missing_of(series: str, calls: int, done: Mapping[str, Result]) -> list[str]:
    names = [f"{series}-{n:03}" for n in range(1, calls + 1)]
    while (last := done.get(names[-1])) and last["reached"]:
        names.append(f"{series}-{len(names) + 1:03}")
    return [name for name in names if name not in done]


def _start() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.crash_rig"],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,  # Ctrl-C is for us: it ends when we close its input
    )


def _end(rig: subprocess.Popen[str]) -> None:
    assert rig.stdin is not None
    rig.stdin.close()
    try:
        rig.wait(ENDS_WITHIN)
    except subprocess.TimeoutExpired:
        rig.terminate()
        rig.wait()
