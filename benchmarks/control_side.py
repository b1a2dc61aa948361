"""What the control side of a home uses: processor seconds and memory, sampled from /proc."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from blocks.local.processes import MARK

EVERY = 2.0
TICK = os.sysconf("SC_CLK_TCK")


@dataclass
class Usage:
    """Totals over all processes that were seen: CPU in seconds, memory in bytes.

    Memory is the proportional share (PSS): what many processes map together counts once. The last
    two seconds of a process that ends are missed.
    """

    peak_bytes: int = 0
    peak_processes: int = 0
    cpu: dict[tuple[int, int], float] = field(default_factory=dict)

    @property
    def cpu_seconds(self) -> float:
        """Over all processes, the ended ones included."""
        return sum(self.cpu.values())

    def sample(self, home: Path) -> None:
        """Look at every process of this home that belongs to no pod."""
        total = count = 0
        for pid in _members(home):
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            except OSError:  # it has ended
                continue
            self.cpu[pid, int(fields[19])] = (int(fields[11]) + int(fields[12])) / TICK
            line = next((each for each in rollup.splitlines() if each.startswith("Pss:")), "x 0")
            total += int(line.split()[1]) * 1024
            count += 1
        self.peak_bytes = max(self.peak_bytes, total)
        self.peak_processes = max(self.peak_processes, count)


@contextmanager
def watching(home: Path) -> Iterator[Usage]:
    """Sample in a thread for the length of the block."""
    usage, stop = Usage(), threading.Event()

    def watch() -> None:
        while not stop.wait(EVERY):
            usage.sample(home)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield usage
    finally:
        stop.set()
        thread.join()


def _members(home: Path) -> Iterator[int]:
    wanted, pod = f"AXR_HOME={home}".encode(), f"{MARK}=".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted in variables and not any(each.startswith(pod) for each in variables):
            yield int(entry.name)
