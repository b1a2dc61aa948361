"""The trainer as a process of the pod: started detached, found again, steered and stopped.

It has a session of its own, no standard input and its own log file, so it outlives whoever started
it. `trainer.json` names it by pid and start time (a pid alone may be someone else's by now), and
every process of it carries AXR_TRAINER=<run directory> in its environment, because torchrun puts
its workers into sessions of their own, where no signal to the group reaches them.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pod.events import read as read_events
from pod.rundir import RunDir, read_json, write_json

MARK = "AXR_TRAINER"
TERMINATE_S = 3.0  # from SIGTERM to SIGKILL: torchrun needs 0.5 s to take its workers along
LEAVE_S = 2.0
KILL_S = 10.0  # a killed process may still be in the kernel, writing or unmapping GPU memory

# Our own children, by pid: only a parent learns an exit code, and must reap.
_children: dict[int, subprocess.Popen[bytes]] = {}


class StillRunning(RuntimeError):
    """Another attempt's trainer lives in this run directory; stop it first."""


@dataclass(frozen=True)
class Trainer:
    """A trainer process; `start` is its start time in clock ticks since boot."""

    pid: int
    start: int
    attempt: int
    run_dir: RunDir

    def alive(self) -> bool:
        """True while the process runs; a zombie counts as dead."""
        child = _children.get(self.pid)
        if child is not None:
            child.poll()
        return _start_time(self.pid) == self.start

    def processes(self) -> list[int]:
        """Return the living processes of it, its own first: ranks and whatever helps them."""
        return sorted(_marked(self.run_dir), key=lambda pid: (pid != self.pid, pid))

    def exit_code(self) -> int | None:
        """Return the exit code (-9: killed by signal 9); None when alive or not our child."""
        child = _children.get(self.pid)
        return None if child is None or self.alive() else child.wait()

    def stop(
        self,
        grace_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Ask the trainer to save and end, give it `grace_s` seconds, then end it by force.

        Returns when no process of it is left. Raises TimeoutError when the kernel does not let
        go of one within KILL_S seconds after SIGKILL.
        """

        def gone_within(seconds: float) -> bool:
            deadline = clock() + seconds
            while self.alive() or _marked(self.run_dir):
                if clock() >= deadline:
                    return False
                sleep(0.05)
            return True

        if grace_s > 0 and self.alive():
            request(self.run_dir, "stop")
            if gone_within(grace_s):
                return
        for number, seconds in ((signal.SIGTERM, TERMINATE_S), (signal.SIGKILL, KILL_S)):
            _signal_all(self, number)
            if gone_within(seconds):
                return
        raise TimeoutError(f"trainer {self.pid} outlives SIGKILL in {self.run_dir.path}")


def start(
    run_dir: RunDir, command: Sequence[str], env: Mapping[str, str], *, attempt: int, cwd: Path
) -> Trainer:
    """Start the trainer of this attempt, or return it when it already runs.

    Raises StillRunning when the trainer of another attempt lives. Processes that a dead one left,
    and a trainer whose starter died before it wrote trainer.json, are ended first.
    """
    with _only_starter(run_dir):
        living = find(run_dir)
        if living is not None and living.attempt == attempt:
            return living
        if living is not None:
            raise StillRunning(f"attempt {living.attempt} still runs as process {living.pid}")
        _end_leftovers(run_dir)
        run_dir.control.unlink(missing_ok=True)  # an old "stop" is not meant for this attempt
        run_dir.pulse.unlink(missing_ok=True)
        with run_dir.trainer_log.open("ab") as log:
            log.write(f"=== attempt {attempt} ===\n".encode())
            log.flush()
            child = subprocess.Popen(
                list(command),
                cwd=cwd,
                env={**env, MARK: str(run_dir.path)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        _children[child.pid] = child
        while child.poll() is None and not _marked(run_dir):
            time.sleep(0.001)  # for some microseconds after exec the environment reads as empty
        started = _start_time(child.pid) or 0  # 0: it has ended already
        write_json(run_dir.trainer_pid, {"pid": child.pid, "start": started, "attempt": attempt})
        return Trainer(child.pid, started, attempt, run_dir)


def find(run_dir: RunDir) -> Trainer | None:
    """Return the living trainer of this run directory, None when there is none."""
    trainer = last(run_dir)
    return trainer if trainer is not None and trainer.alive() else None


def last(run_dir: RunDir) -> Trainer | None:
    """Return the trainer that was started last, dead or alive, None when there never was one."""
    noted = read_json(run_dir.trainer_pid)
    if noted is None:
        return None
    return Trainer(noted["pid"], noted["start"], noted["attempt"], run_dir)


def request(run_dir: RunDir, cmd: str, **fields: object) -> int:
    """Write a command for the trainer into control.json and return its sequence number."""
    waiting = read_json(run_dir.control) or {}
    answered = [event.get("seq", 0) for event in read_events(run_dir.events)[0]]
    seq = int(max([waiting.get("seq", 0), *answered])) + 1
    write_json(run_dir.control, {"seq": seq, "cmd": cmd, **fields})
    return seq


def command(
    axolotl: Path,
    run_dir: RunDir,
    *,
    launcher: str = "python",
    resume_from: Path | None = None,
    processes: int = 1,
) -> list[str]:
    """Return the command line that trains `axolotl.yml`; launcher: python, accelerate, torchrun.

    Several processes are always torchrun's, one for each GPU.
    """
    if processes > 1:
        launcher = "torchrun"
    words = [str(axolotl), "train", str(run_dir.axolotl_file), "--launcher", launcher]
    if resume_from is not None:
        words += ["--resume-from-checkpoint", str(resume_from)]
    if processes > 1:  # without `standalone` two runs on one machine would want the same port
        words += ["--", "--standalone", f"--nproc-per-node={processes}"]
    return words


def trainer_environment(
    base: Mapping[str, str], *, axolotl_env: Path, run_dir: RunDir, gpu: bool
) -> dict[str, str]:
    """Return the trainer's environment: `base`, its own virtual environment first in PATH.

    Without a GPU the trainer is kept to the CPU. What `base` sets of the rest stays as it is.
    """
    repository = str(Path(__file__).resolve().parent.parent)
    others = [part for part in base.get("PYTHONPATH", "").split(os.pathsep) if part]
    settings = {"AXOLOTL_DO_NOT_TRACK": "1", "PYTHONUNBUFFERED": "1", **base}
    settings.pop("PYTHONHOME", None)
    settings["PATH"] = os.pathsep.join([str(axolotl_env / "bin"), base.get("PATH", os.defpath)])
    settings["VIRTUAL_ENV"] = str(axolotl_env)
    settings["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([repository, *others]))
    settings["AXR_RUN_DIR"] = str(run_dir.path)
    if not gpu:
        settings.update(ACCELERATE_USE_CPU="1", CUDA_VISIBLE_DEVICES="")
    return settings


@contextmanager
def _only_starter(run_dir: RunDir) -> Iterator[None]:
    run_dir.path.mkdir(parents=True, exist_ok=True)
    # Python's descriptors do not pass exec, so the trainer never holds this lock.
    with run_dir.trainer_lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _end_leftovers(run_dir: RunDir) -> None:
    """A dead trainer's helpers mostly leave by themselves within a second."""
    killing_from = time.monotonic() + LEAVE_S
    while left := _marked(run_dir):
        now = time.monotonic()
        if now > killing_from + KILL_S:
            raise TimeoutError(f"processes {left} outlive SIGKILL in {run_dir.path}")
        for pid in left if now > killing_from else []:
            _send(pid, signal.SIGKILL)
        time.sleep(0.02)


def _start_time(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat; None for a dead process or a zombie."""
    fields = _stat(pid)
    return None if fields is None or fields[0] in "ZX" else int(fields[19])


def _stat(pid: int) -> list[str] | None:
    """The fields from the third on: the name before them may hold blanks and brackets."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _marked(run_dir: RunDir) -> list[int]:
    wanted = f"{MARK}={run_dir.path}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:  # gone meanwhile, or another user's
            continue
        if wanted in environment.split(b"\0"):
            found.append(int(entry.name))
    return found


def _signal_all(trainer: Trainer, number: signal.Signals) -> None:
    group = [-trainer.pid] if trainer.alive() else []
    for target in group + _marked(trainer.run_dir):
        _send(target, number)


def _send(target: int, number: signal.Signals) -> None:
    try:
        os.kill(target, number)
    except ProcessLookupError:
        return  # gone meanwhile, which is all we want
