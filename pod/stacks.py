"""Where processes stand: the stacks of all their threads, in the trainer's log.

By py-spy, which needs nothing of the process but the right to look into its memory. Containers
often forbid that; then the process is asked to write its stacks itself, by SIGUSR1, which the
plugin has prepared (faulthandler, which works while Python itself is stuck in a library).
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

MOST = 24  # processes: 8 ranks, their launcher, and some of the data loaders
TOTAL_S = 90.0
SPY_S = 10.0
ANSWER_S = 5.0
FRAMES = 6
_SIGUSR1_BIT = 1 << (signal.SIGUSR1 - 1)
_FAULT_FRAME = re.compile(r'File "(?:.*/)?([^"/]+)", line (\d+) in (.+)')


def dump(
    processes: Sequence[int],
    log: Path,
    *,
    spy: str | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[str]:
    """Append the stacks of the Python processes among these to `log`, and at its end, returned as
    well, one line for each: where its main thread stands.

    `spy` is py-spy's program; by default it is looked for beside this Python and in PATH.
    """
    spy = spy or _find_spy()
    deadline = clock() + TOTAL_S
    lines = []
    for pid in [pid for pid in processes if _is_python(pid)][:MOST]:
        if clock() >= deadline:
            lines.append(f"process {pid} and those after it were not looked into")
            break
        # The line before may be a progress bar, which has no end.
        _append(log, f"\n=== stacks of process {pid} ===")
        text = _spied(spy, pid) if spy else None
        if text is not None:
            _append(log, text.rstrip())
        else:
            text = _told(pid, log, clock, sleep)
        stands = _stands(text, pid) if text else "unknown: it lets nobody look and says nothing"
        lines.append(f"process {pid}{_rank(pid)} stands at {stands}")
    _append(log, "\n".join(lines) or "no Python process was left to look into")
    return lines


def _find_spy() -> str | None:
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")


def _spied(spy: str, pid: int) -> str | None:
    try:
        done = subprocess.run(
            [spy, "dump", "--pid", str(pid)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SPY_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 and "Thread" in done.stdout else None


def _told(
    pid: int, log: Path, clock: Callable[[], float], sleep: Callable[[float], None]
) -> str | None:
    """What the process writes into its log on SIGUSR1; unprepared, the signal would end it."""
    if not _catches_sigusr1(pid):
        return None
    begin = log.stat().st_size
    try:
        os.kill(pid, signal.SIGUSR1)
    except OSError:
        return None
    deadline, size = clock() + ANSWER_S, begin
    while clock() < deadline:
        sleep(0.2)
        grown = log.stat().st_size
        if grown > begin and grown == size:
            break
        size = grown
    with log.open("rb") as file:
        file.seek(begin)
        text = file.read().decode(errors="replace")
    return text if "most recent call first" in text else None


def _stands(text: str, pid: int) -> str:
    """The innermost frames of the main thread, innermost first."""
    blocks: list[list[str]] = []
    for line in text.splitlines():
        if re.match(r"(Current thread|Thread) ", line):
            blocks.append([line])
        elif blocks and line.startswith(" "):
            blocks[-1].append(line)
    # py-spy names the main thread or gives its id, the process's own; a signal comes to it.
    main = re.compile(rf'.*"MainThread"|Current thread |Thread {pid} ')
    found = next((each for each in blocks if main.match(each[0])), blocks[-1] if blocks else [])
    frames = [_FAULT_FRAME.sub(r"\3 (\1:\2)", line.strip()) for line in found[1:]]
    return " < ".join(frames[:FRAMES]) or "unknown: it has no Python frames"


def _is_python(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/exe").readlink().name.startswith("python")
    except OSError:
        return False


def _catches_sigusr1(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = re.search(r"^SigCgt:\s*([0-9a-f]+)", status, re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) & _SIGUSR1_BIT)


def _rank(pid: int) -> str:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    found = [part[5:].decode() for part in variables if part.startswith(b"RANK=")]
    return f" (rank {found[0]})" if found else ""


def _append(log: Path, text: str) -> None:
    with log.open("ab") as file:
        file.write(f"{text}\n".encode())
