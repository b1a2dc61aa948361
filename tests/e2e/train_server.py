"""Trains with axolotl on request, each time in a process of its own that need not load axolotl.

Loading axolotl takes 20 s of one core, a tiny training 2 s. This process, run by the trainer's
Python, loads it once, then reads a job a line and forks a trainer for it, which does what
`axolotl train FILE --launcher python` does. It answers with a line when a trainer has ended.

    {"id": 3, "run_dir": "/…", "resume_from": null, "limit_s": 120}   ->   {"id": 3, "code": 0}
    {"id": 4, "run_dir": "/…", "ranks": 2, "words": […], "limit_s": 60}   several ranks of
        tests/e2e/ranks_worker.py; the code is that of the first to fail, 9 where one hangs
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

FOLLOW_S = 30.0  # from the first rank's end to the last one's, on a busy machine


@dataclass(frozen=True)
class Job:
    """A trainer at work."""

    id: int
    deadline: float


def main() -> None:
    """Serve until standard input ends, then end what still trains."""
    load()
    answer({"ready": True})
    jobs: dict[int, Job] = {}
    unread = b""
    try:
        while True:
            if select.select([0], [], [], 0.02)[0]:
                block = os.read(0, 65536)
                if not block:
                    return
                *lines, unread = (unread + block).split(b"\n")
                for line in lines:
                    start(json.loads(line), jobs)
            reap(jobs)
    finally:
        for pid in jobs:
            os.killpg(pid, signal.SIGKILL)


def load() -> None:
    """Import all that a training needs; nothing may start a thread that does not outlive a fork."""
    import axolotl.cli.config
    import axolotl.cli.train
    import axolotl.common.datasets
    import axolotl.core.builders
    import axolotl.train
    import trl

    assert axolotl.train
    assert trl.DPOTrainer
    gc.freeze()  # axolotl's DPO trainer collects at each step: 0.3 s with all this to look through


def start(request: dict[str, Any], jobs: dict[int, Job]) -> None:
    """Fork a trainer."""
    pid = os.fork()
    if pid == 0:
        enter(Path(request["run_dir"]))
        if "ranks" in request:
            os._exit(launch(request["ranks"], request["words"]))
        end_with(lambda: train(Path(request["run_dir"]), request["resume_from"]))
    os.setpgid(pid, pid)
    jobs[pid] = Job(request["id"], time.monotonic() + request["limit_s"])


def reap(jobs: dict[int, Job]) -> None:
    """Answer for those that have ended; end those that take too long."""
    for pid, job in list(jobs.items()):
        if time.monotonic() > job.deadline:
            os.killpg(pid, signal.SIGKILL)
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            del jobs[pid]
            answer({"id": job.id, "code": os.waitstatus_to_exitcode(status)})


def answer(value: dict[str, Any]) -> None:
    """Write a line."""
    print(json.dumps(value), flush=True)


def enter(run_dir: Path) -> None:
    """Be a trainer of this run directory: own group, log file, environment."""
    os.setpgid(0, 0)
    log = os.open(run_dir / "trainer.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, nothing), (1, log), (2, log)):
        os.dup2(source, target)
    os.environ["AXR_RUN_DIR"] = str(run_dir)
    sys.argv = ["axolotl"]


def train(run_dir: Path, resume_from: str | None) -> None:
    """What `axolotl train` does."""
    from axolotl.cli.train import do_cli

    resume = {"resume_from_checkpoint": resume_from} if resume_from else {}
    do_cli(config=str(run_dir / "axolotl.yml"), **resume)


def launch(ranks: int, words: list[str]) -> int:
    """Fork the ranks and wait for them; one that does not follow the others is ended."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(ranks))
    left = set()
    for rank in range(ranks):
        pid = os.fork()
        if pid == 0:
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
            end_with(lambda: importlib.import_module("tests.e2e.ranks_worker").main(words))
        left.add(pid)
    codes = []
    deadline = None
    while left:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            left.remove(pid)
            codes.append(os.waitstatus_to_exitcode(status))
            deadline = deadline or time.monotonic() + FOLLOW_S
        elif deadline is not None and time.monotonic() > deadline:
            for other in left:
                os.kill(other, signal.SIGKILL)
            return 9
        else:
            time.sleep(0.02)
    return next((abs(code) for code in codes if code), 0)


def end_with(act: Callable[[], object]) -> NoReturn:
    """Act and end this process with the exit code that Python would give."""
    code = 1
    try:
        act()
        code = 0
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
