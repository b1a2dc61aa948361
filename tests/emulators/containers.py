"""A pod's container as local processes.

- The environment is the image's, the pod's and the injected one; nothing of the emulator's own.
- The mount path cannot exist on this machine: it is replaced by the real folder where it begins a
  value of the environment or an argument, and only there.
- Every process of a pod is known by its mark, the variable of the pod's id in its environment, or
  as a child of such a one; so detached sessions die with the pod too. A process that gave its mark
  up and lost its parent is not found.

Not covered: a file system, a network or users of its own; limits of memory and disk; images.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

BASE = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
}
_PATIENCE = 5.0


def mapped(value: str, mount: str | None, folder: Path) -> str:
    """The value with the real folder where the mount path begins it."""
    if mount and (value == mount or value.startswith(mount.rstrip("/") + "/")):
        return str(folder) + value[len(mount.rstrip("/")) :]
    return value


class Container:
    """One start of a pod's command; `on_line(source, text)` gets what it says, without newline."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        on_line: Callable[[str, str], None],
    ) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._process = subprocess.Popen(
                command,
                env=dict(environment),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            on_line("system", f"error: the container's command does not start: {error}")
            return
        threading.Thread(target=self._read, args=(on_line,), daemon=True).start()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def exit_code(self) -> int | None:
        """None while the main process runs; 127 when it never did."""
        return self._process.poll() if self._process else 127

    def ask_to_end(self) -> None:
        """SIGTERM for the main process."""
        if self._process:
            self._process.terminate()

    def _read(self, on_line: Callable[[str, str], None]) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                on_line("container", line.decode(errors="replace").rstrip("\r\n"))


def processes_of(mark: str) -> set[int]:
    """The living processes of a pod: those that have its mark, `NAME=value`, and all that descend
    from them.
    """
    wanted = mark.encode()
    parents: dict[int, int] = {}
    found: set[int] = set()
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            status = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
            if status[0] in "ZX":
                continue
            pid = int(entry.name)
            parents[pid] = int(status[1])
            if wanted in Path(entry.path, "environ").read_bytes().split(b"\0"):
                found.add(pid)
    found.discard(os.getpid())
    grown = True
    while grown:
        children = {pid for pid, parent in parents.items() if parent in found} - found
        found |= children
        grown = bool(children)
    return found


def kill_all(mark: str) -> None:
    """SIGKILL for every process of the pod with this mark, until none is left."""
    end = time.monotonic() + _PATIENCE
    while left := processes_of(mark):
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > end:
            raise RuntimeError(f"processes with {mark} do not die: {sorted(left)}")
        time.sleep(0.005)
