"""Tiny axolotl trainings for tests, two at a time, by a server that has axolotl loaded already."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from pod import events, trainer
from pod.events import Event
from pod.ledger import Checkpoint
from pod.rundir import RunDir, write_json

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLES = REPOSITORY / "configs" / "examples"
PLUGIN = "pod.plugin.RunnerPlugin"
LIMIT_S = 240.0


@dataclass(frozen=True)
class Trained:
    """A run directory that was trained in, and the exit code of its last trainer."""

    run_dir: RunDir
    code: int = 0

    def events(self, kind: str, attempt: int = 1) -> list[Event]:
        found = events.read(self.run_dir.events)[0]
        return [e for e in found if (e["kind"], e["attempt"]) == (kind, attempt)]

    def losses(self, attempt: int = 1) -> dict[int, float]:
        return {event["step"]: event["loss"] for event in self.events("step", attempt)}

    def log(self) -> str:
        return self.run_dir.trainer_log.read_text(errors="replace")

    def rows(self, attempt: int = 1) -> dict[int, list[list[str]]]:
        """What tests.faults.record_rows saw: the micro batches of each step."""
        found: dict[int, list[list[str]]] = {}
        for line in (self.run_dir.path / "rows.jsonl").read_text().splitlines():
            entry = json.loads(line)
            if entry["attempt"] == attempt:
                found.setdefault(entry["step"], []).append(entry["rows"])
        return found


@dataclass
class TrainServer:
    """The server's process; `train` gives a future and two trainers work at once."""

    process: subprocess.Popen[str]
    _waiting: dict[int, tuple[Trained, Future[Trained]]] = field(default_factory=dict)
    _count: int = 0
    _places: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(2))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def train(
        self,
        run_dir: RunDir,
        *,
        attempt: int = 1,
        resume_from: int | Checkpoint | None = None,
        **facts: Any,
    ) -> Future[Trained]:
        """Start an attempt from checkpoint-`resume_from` of the run itself, or from a picked one.

        Waits while two others train.
        """
        if isinstance(resume_from, int):
            resume_from = Checkpoint(
                run_dir.out / f"checkpoint-{resume_from}", resume_from, "healthy"
            )
        self._places.acquire()
        write_json(
            run_dir.attempt_file,
            {
                "attempt": attempt,
                "from_checkpoint": resume_from.step if resume_from else None,
                "rung": None,
                "spike": {},
                **facts,
            },
        )
        return self._send(run_dir, {"resume_from": str(resume_from.path) if resume_from else None})

    def train_ranks(self, run_dir: RunDir, ranks: int, words: list[str]) -> Future[Trained]:
        """Start ranks of tests/e2e/ranks_worker.py; attempt.json is written already."""
        self._places.acquire()
        return self._send(run_dir, {"ranks": ranks, "words": words})

    def _send(self, run_dir: RunDir, job: dict[str, Any]) -> Future[Trained]:
        job |= {"run_dir": str(run_dir.path), "limit_s": LIMIT_S}
        future: Future[Trained] = Future()
        assert self.process.stdin is not None
        with self._lock:
            self._count += 1
            self._waiting[self._count] = (Trained(run_dir), future)
            self.process.stdin.write(json.dumps({"id": self._count, **job}) + "\n")
            self.process.stdin.flush()
        return future

    def listen(self) -> None:
        """Hand out the answers until the server ends."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.startswith('{"id"'):
                continue
            said = json.loads(line)
            trained, future = self._waiting.pop(said["id"])
            self._places.release()
            future.set_result(Trained(trained.run_dir, said["code"]))
        for _, future in self._waiting.values():
            future.set_exception(RuntimeError("the server of trainers has died"))


@contextmanager
def serving(axolotl_env: Path, log: Path) -> Iterator[TrainServer]:
    """Run a server of trainers on the CPU, with the tiny model made."""
    python = axolotl_env / "bin" / "python"
    subprocess.run([python, EXAMPLES / "make_tiny.py"], check=True)
    settings = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    with log.open("w") as errors:
        process = subprocess.Popen(
            [python, Path(__file__).with_name("train_server.py")],
            cwd=REPOSITORY,
            env=trainer.trainer_environment(
                settings, axolotl_env=axolotl_env, run_dir=RunDir(Path("none")), gpu=False
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        server = TrainServer(process)
        listener = threading.Thread(target=server.listen)
        listener.start()
        yield server
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=20)
        listener.join()


def make_run(folder: Path, *, task: str = "tiny.yml", **changes: Any) -> RunDir:
    """Write what axolotl is given, as the prepare step does; a change to None takes a key away."""
    run_dir = RunDir(folder)
    config = yaml.safe_load((EXAMPLES / task).read_text())
    del config["runner"]
    config |= {
        "output_dir": str(run_dir.out),
        "dataset_prepared_path": str(folder / "prepared"),
        "dataset_num_proc": 1,  # in this process: starting others takes longer than the work
    }
    config |= changes
    config["plugins"] = [*config.get("plugins", []), PLUGIN]
    folder.mkdir(parents=True)
    kept = {key: value for key, value in config.items() if value is not None}
    run_dir.axolotl_file.write_text(yaml.safe_dump(kept))
    return run_dir
