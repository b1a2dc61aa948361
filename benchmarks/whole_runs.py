"""Whole runs with us and by hand, for the parts that compare them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from pod import trainer
from pod.rundir import RunDir
from runner.home import REPOSITORY, axolotl_environment
from tests.e2e.conftest import TINY, Side, make_side

WATCH, STEPS = "benchmarks.step_watch.StepWatch", "BENCH_STEPS"
LIMIT_S = 1800.0
LEAVE_S = 30.0


@contextmanager
def control_side() -> Iterator[Side]:
    """A control side that is up, in a home of its own."""
    with TemporaryDirectory(prefix="axr-") as folder:
        side = make_side(Path(folder))
        up = side.cli("up")
        if up.returncode:
            raise SystemExit(up.stderr)
        try:
            yield side
        finally:
            side.cli("down")


def task_file(folder: Path, **changes: Any) -> Path:
    """The tiny task file with changes (None takes a key away), none of whose data is prepared."""
    settings = yaml.safe_load((REPOSITORY / TINY).read_text())
    settings |= {
        "output_dir": str(folder / "out"),
        "dataset_prepared_path": str(folder / "prepared"),
        **changes,
    }
    folder.mkdir(parents=True)
    file = folder / "task.yml"
    kept = {key: value for key, value in settings.items() if value is not None}
    file.write_text(yaml.safe_dump(kept, sort_keys=False))
    return file


@dataclass(frozen=True)
class ByHand:
    """`axolotl train` of a task file, as one would type it."""

    file: Path

    @property
    def _steps(self) -> Path:
        return self.file.with_name("steps.jsonl")

    def train(self) -> float:
        """Train to the end; seconds."""
        began = time.monotonic()
        process = self.start()
        if process.wait(LIMIT_S):
            raise SystemExit(f"axolotl failed:\n{self._last_words()}")
        return time.monotonic() - began

    def start(self, *more: str, environment: Mapping[str, str] = os.environ) -> Any:
        """Start it; `more` are options of `axolotl train`."""
        settings = trainer.trainer_environment(
            {
                **environment,
                "PYTHONPATH": str(REPOSITORY),
                "HF_HUB_OFFLINE": "1",
                "OMP_NUM_THREADS": "1",
                STEPS: str(self._steps),
            },
            axolotl_env=axolotl_environment(),
            run_dir=RunDir(Path("none")),
            gpu=False,
        )
        axolotl = axolotl_environment() / "bin" / "axolotl"
        with self.file.with_name("log").open("ab") as log:
            return subprocess.Popen(
                [axolotl, "train", self.file, "--launcher", "python", *more],
                cwd=REPOSITORY, env=settings, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def restart(self, at: int, checkpoint: int) -> tuple[float, float]:
        """Train to step `at`, stop, start again from a checkpoint; seconds from the stop to the
        first step, and those from the start of the second process to it.

        Nobody thinks or types: the best that a person at the keyboard could do.
        """
        first = self.start()
        self._wait_for_step(first, at, since=0.0)
        stopped = time.time()
        first.send_signal(signal.SIGTERM)
        try:
            first.wait(LEAVE_S)
        except subprocess.TimeoutExpired:
            first.kill()
            first.wait()
        began = time.time()
        folder = yaml.safe_load(self.file.read_text())["output_dir"]
        second = self.start("--resume-from-checkpoint", f"{folder}/checkpoint-{checkpoint}")
        done = self._wait_for_step(second, checkpoint + 1, since=began)
        second.kill()
        second.wait()
        return done - stopped, done - began

    def _wait_for_step(self, process: Any, step: int, *, since: float) -> float:
        deadline = time.monotonic() + LIMIT_S
        while True:
            lines = self._steps.read_text().splitlines() if self._steps.exists() else []
            for noted in (json.loads(line) for line in lines if line.endswith("}")):
                if noted["step"] == step and noted["t"] > since:
                    return float(noted["t"])
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"no step {step}:\n{self._last_words()}")
            time.sleep(0.02)

    def _last_words(self) -> str:
        return self.file.with_name("log").read_text(errors="replace")[-2000:]
