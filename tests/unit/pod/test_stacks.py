"""Stacks of real processes that stand still, by both ways."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pod import stacks

PREPARED = (
    "import faulthandler, signal\nfaulthandler.register(signal.SIGUSR1, file=2, all_threads=True)\n"
)
STANDS = (
    "import threading\n"
    "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    "def stand_still():\n    print('up', flush=True)\n    threading.Event().wait()\n"
    "stand_still()\n"
)


class Standing:
    """A process that stands still in stand_still, with its log."""

    def __init__(self, folder: Path, code: str) -> None:
        (folder / "still.py").write_text(code)
        self.log = folder / "trainer.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, folder / "still.py"], stdout=log, stderr=log
            )
        deadline = time.monotonic() + 10
        while "up" not in self.log.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.fixture
def prepared(tmp_path: Path) -> Iterator[Standing]:
    standing = Standing(tmp_path, PREPARED + STANDS)
    yield standing
    standing.process.kill()
    standing.process.wait()


@pytest.fixture
def unprepared(tmp_path: Path) -> Iterator[Standing]:
    standing = Standing(tmp_path, STANDS)
    yield standing
    standing.process.kill()
    standing.process.wait()


def spy(folder: Path, script: str) -> str:
    """A program in py-spy's place."""
    program = folder / "py-spy"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


def test_the_stacks_stand_in_the_log(prepared: Standing) -> None:
    """By py-spy, or by the process itself where that may not look: always one of both."""
    (line,) = stacks.dump([prepared.process.pid], prepared.log)
    assert line.startswith(f"process {prepared.process.pid} stands at ")
    assert "stand_still (still.py:" in line
    text = prepared.log.read_text()
    assert f"=== stacks of process {prepared.process.pid} ===" in text
    assert text.endswith(line + "\n")
    assert text.count("stand_still") >= 2
    assert prepared.process.poll() is None


@pytest.mark.parametrize("script", ["echo Permission denied >&2; exit 1", "exit 0"])
def test_a_process_that_nobody_may_look_into_tells_itself(prepared: Standing, script: str) -> None:
    """ptrace is denied in many containers."""
    program = spy(prepared.log.parent, script)
    (line,) = stacks.dump([prepared.process.pid], prepared.log, spy=program)
    assert "stand_still (still.py:" in line
    assert "most recent call first" in prepared.log.read_text()
    assert prepared.process.poll() is None


def test_py_spys_words_are_understood(prepared: Standing) -> None:
    """The main thread's innermost frames, wherever it comes."""
    words = """cat <<'END'
Process 7: python train.py
Thread 8 (idle): "pulse"
    wait (threading.py:331)
Thread 7 (active): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:2806)
    training_step (transformers/trainer.py:3782)
Thread 9 (idle): "other"
    wait (threading.py:331)
END"""
    program = spy(prepared.log.parent, words)
    (line,) = stacks.dump([prepared.process.pid], prepared.log, spy=program)
    assert line.endswith(
        " stands at all_reduce (torch/distributed/distributed_c10d.py:2806)"
        " < training_step (transformers/trainer.py:3782)"
    )


def test_an_unprepared_process_is_not_ended_by_the_question(unprepared: Standing) -> None:
    """SIGUSR1 ends whoever does not expect it."""
    program = spy(unprepared.log.parent, "exit 1")
    (line,) = stacks.dump([unprepared.process.pid], unprepared.log, spy=program)
    assert line.endswith("stands at unknown: it lets nobody look and says nothing")
    assert unprepared.process.poll() is None


def test_a_spy_that_hangs_is_given_up(prepared: Standing, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may stop at a process that the kernel does not let go of."""
    monkeypatch.setattr(stacks, "SPY_S", 0.2)
    program = spy(prepared.log.parent, "exec sleep 60")
    (line,) = stacks.dump([prepared.process.pid], prepared.log, spy=program)
    assert "stand_still (still.py:" in line


def test_ranks_are_named_and_other_programs_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tracker's helper is no Python; a process that is gone says nothing."""
    monkeypatch.setenv("RANK", "3")
    standing = Standing(tmp_path, PREPARED + STANDS)
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        lines = stacks.dump([sleeper.pid, 2**22 + 1, standing.process.pid], standing.log)
        assert [line.partition(" stands")[0] for line in lines] == [
            f"process {standing.process.pid} (rank 3)"
        ]
        assert sleeper.poll() is None
    finally:
        for process in (sleeper, standing.process):
            process.kill()
            process.wait()


def test_nothing_to_look_into_is_said(tmp_path: Path) -> None:
    """The log never stays silent about it."""
    log = tmp_path / "trainer.log"
    assert stacks.dump([], log) == []
    assert log.read_text() == "no Python process was left to look into\n"
