"""How an attempt ended, told from evidence: events, files and the log; an exit code proves nothing.

Exit 0 is also what an interrupted trainer, its own watchdog and a plugin that was never loaded
give; a complete run may exit otherwise, because a tracker hung or a clean-up failed.
The rules are tried in the order of `_RULES`; the first that knows the case decides.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pod import logtail
from pod.events import Event
from pod.integrity import is_whole

if TYPE_CHECKING:
    from runner.errors import Outcome

# So many points in a row at the end of a run are no accident.
_TRAILING = 3
_WATCHDOG = "Loss is too high, stopping training (loss_watchdog_threshold)"
_NOT_LOADED = re.compile(r"Failed to load plugin: pod\.plugin")
_TRAINS = re.compile(r"^\{'loss': ", re.MULTILINE)
_GPU_MEMORY = re.compile(r"OutOfMemoryError|CUDA out of memory|HIP out of memory")
_DISK = re.compile(r"No space left on device|\[Errno 28\]|Disk quota exceeded")
_KILLED = re.compile(r"Signal 9 \(SIGKILL\)|killed by signal: Killed|exitcode\s*: -9")
_CALLBACK = "UserCallbackError"  # of pod.user_callbacks, which needs transformers
_ALARMS: dict[str, Outcome] = {"nonfinite": "nonfinite", "collapse": "collapse"}


@dataclass(frozen=True)
class Verdict:
    """How an attempt ended; steps are 1-based and inclusive, None if there is none.

    `reason` is one line; `note` adds what is odd about a good end; `tail` is the end of the log.
    """

    outcome: Outcome
    reason: str
    first_step: int | None
    last_step: int | None
    onset_step: int | None
    alarm_step: int | None
    planned_steps: int | None
    final_loss: float | None
    tail: tuple[str, ...] = ()
    note: str | None = None


def judge(
    events: list[Event],
    *,
    attempt: int,
    alive: bool,
    exit_code: int | None,
    log_tail: str,
    out: Path,
) -> Verdict | None:
    """Return how this attempt ended, None while its trainer runs.

    A living trainer gets a verdict in two cases only: it trains without our plugin, or its alarm
    waits for the next attempt. `exit_code` is None when the trainer was not our child; `out` is
    its output folder.
    """
    case = _case(events, attempt, exit_code, logtail.of_attempt(log_tail, attempt), out)
    if alive and not case.waits:
        return case.verdict(*_UNARMED) if case.unarmed and _TRAINS.search(case.log) else None
    for rule in _RULES:
        ending = rule(case)
        if ending is not None:
            return case.verdict(*ending)
    return case.verdict("crash", f"the trainer ended {_where(case)} and left no reason")


def decided_at(events: list[Event], *, attempt: int) -> float | None:
    """Return when (unix seconds) the trainer wrote its last word: end, alarm or error; else None.

    A trainer that has not left some time after it hangs in a clean-up and may be stopped.
    """
    times = [
        float(event["t"])
        for event in events
        if event["attempt"] == attempt and event["kind"] in ("end", "alarm", "error")
    ]
    return min(times, default=None)


_Ending = tuple["Outcome", str] | tuple["Outcome", str, str | None]
_UNARMED: tuple[Outcome, str] = (
    "crash",
    "plugin not loaded: the trainer does not report to us, so nothing guards it",
)


@dataclass(frozen=True)
class _Case:
    steps: list[Event]
    armed: Event | None
    alarm: Event | None
    error: Event | None
    hang: Event | None
    end: Event | None
    stopped: bool
    exit_code: int | None
    log: str
    out: Path

    @property
    def unarmed(self) -> bool:
        return self.armed is None and not self.steps

    @property
    def waits(self) -> bool:
        """Whether the trainer has ended this attempt and may begin the next one."""
        return self.alarm is not None and bool(self.alarm.get("waiting"))

    @property
    def planned(self) -> int | None:
        for event in (self.end, self.armed):
            if event is not None and event.get("planned_steps") is not None:
                return int(event["planned_steps"])
        return None

    @property
    def last_step(self) -> int | None:
        steps = [event["step"] for event in self.steps]
        if self.end is not None and self.end["step"]:
            steps.append(self.end["step"])
        if self.hang is not None and self.hang["phase"] != "loading":
            steps.append(self.hang["step"])  # the log may name only every tenth step
        return max(steps, default=None)

    @property
    def worthless_since(self) -> int | None:
        """The first step of the trailing points that show broken weights."""
        onset = None
        for event in reversed(self.steps):
            if not (_non_finite(event) or _collapsed(event)):
                break
            onset = event["step"]
        return onset if _worthless(self) else None

    def verdict(self, outcome: Outcome, reason: str, note: str | None = None) -> Verdict:
        losses = [event["loss"] for event in self.steps if event.get("loss") is not None]
        return Verdict(
            outcome=outcome,
            reason=reason,
            first_step=min((event["step"] for event in self.steps), default=None),
            last_step=self.last_step,
            onset_step=self.alarm["onset_step"] if self.alarm else self.worthless_since,
            alarm_step=self.alarm["step"] if self.alarm else None,
            planned_steps=self.planned,
            final_loss=losses[-1] if losses and math.isfinite(losses[-1]) else None,
            tail=logtail.tail(self.log),
            note=note,
        )


def _case(events: list[Event], attempt: int, exit_code: int | None, log: str, out: Path) -> _Case:
    own = [event for event in events if event["attempt"] == attempt]

    def newest(kind: str) -> Event | None:
        return next((event for event in reversed(own) if event["kind"] == kind), None)

    return _Case(
        steps=[event for event in own if event["kind"] == "step"],
        armed=newest("armed"),
        alarm=newest("alarm"),
        error=newest("error"),
        hang=newest("hang"),
        end=newest("end"),
        stopped=any(event["kind"] == "decision" and event.get("cmd") == "stop" for event in own),
        exit_code=exit_code,
        log=log,
        out=out,
    )


def _alarm(case: _Case) -> _Ending | None:
    if case.alarm is None:
        return None
    kind, onset = case.alarm["alarm"], case.alarm["onset_step"]
    reason = f"{case.alarm['reason']} (from step {onset}, certain at step {case.alarm['step']})"
    return _ALARMS.get(kind, "loss_spike"), reason


def _worthless(case: _Case) -> _Ending | None:
    """Weights that no alarm has judged: the guard was off, or the run too short for it."""
    last = case.steps[-_TRAILING:]
    if len(last) < _TRAILING and case.end is None:
        return None
    if last and all(_non_finite(event) for event in last):
        return "nonfinite", f"loss or gradient norm was not finite {_where(case)}"
    if last and all(_collapsed(event) for event in last):
        return "collapse", f"the loss was exactly 0 {_where(case)}: the weights are broken"
    return None


def _watchdog(case: _Case) -> _Ending | None:
    if _WATCHDOG not in case.log:
        return None
    return "loss_spike", f"axolotl's own loss_watchdog_threshold stopped the run {_where(case)}"


def _complete(case: _Case) -> _Ending | None:
    end = case.end
    if end is None or not (end.get("finished") or end.get("early")):
        return None
    files = [case.out / name for name in end.get("files") or []]
    if not files:
        return "crash", f"the run ended {_where(case)}, but it wrote no weights"
    broken = [path.name for path in files if not is_whole(path)]
    if broken:
        return "crash", f"the run ended {_where(case)}, but {broken[0]} is missing or cut off"
    reason = "all steps trained" if end.get("finished") else f"stopped early {_where(case)}"
    notes = [] if end.get("finished") else ["early stopping ended the run before its last step"]
    if case.exit_code:
        notes.append(f"the trainer left with code {case.exit_code} after its work was done")
    return "completed", reason, "; ".join(notes) or None


def _cancelled(case: _Case) -> _Ending | None:
    return ("cancelled", f"stopped on request {_where(case)}") if case.stopped else None


def _gpu_memory(case: _Case) -> _Ending | None:
    in_event = case.error is not None and case.error.get("cuda_oom")
    if not in_event and not _GPU_MEMORY.search(case.log):
        return None
    return "out_of_memory", f"out of GPU memory {_where(case)}"


def _disk(case: _Case) -> _Ending | None:
    text = case.log + (str(case.error.get("message")) if case.error else "")
    if not _DISK.search(text):
        return None
    return "crash", f"disk full {_where(case)}: no space left for checkpoints"


def _hang(case: _Case) -> _Ending | None:
    """What its follower saw before it ended the trainer; a cause that the log names comes first."""
    return None if case.hang is None else ("hang", str(case.hang["reason"]))


def _not_armed(case: _Case) -> _Ending | None:
    if not case.unarmed:
        return None
    silent = case.exit_code == 0 and logtail.error_line(case.log) is None
    if silent or _NOT_LOADED.search(case.log) or _TRAINS.search(case.log):
        return _UNARMED
    return None


def _callback(case: _Case) -> _Ending | None:
    """A callback of the task file that can't be used: no other attempt would do better."""
    if case.error is not None and case.error["error"] == _CALLBACK:
        return "config_error", logtail.headline(str(case.error.get("message")).splitlines())
    line = logtail.error_line(case.log) or "" if case.error is None else ""
    _, named, message = line.partition(f"{_CALLBACK}: ")
    return ("config_error", message) if named else None


def _error(case: _Case) -> _Ending | None:
    if case.error is not None:
        message = str(case.error.get("message") or "").strip().splitlines()
        return "crash", f"{case.error['error']}: {logtail.headline(message)} ({_where(case)})"
    line = logtail.error_line(case.log)
    return None if line is None else ("crash", f"{line} ({_where(case)})")


def _killed(case: _Case) -> _Ending | None:
    if case.exit_code not in (-9, 137) and not _KILLED.search(case.log):
        return None
    return "crash", f"killed by the system {_where(case)}, likely out of host memory"


def _vanished(case: _Case) -> _Ending | None:
    """Nobody saw the exit code and nothing was said: only SIGKILL ends a trainer like that."""
    if case.exit_code is not None or case.end is not None:
        return None
    return "crash", f"vanished without a word {_where(case)}, likely killed for host memory"


def _unfinished(case: _Case) -> _Ending | None:
    if case.exit_code not in (0, None):
        return "crash", f"the trainer left with code {case.exit_code} {_where(case)}"
    at = case.last_step or 0
    return "crash", f"stopped at step {at} of {case.planned or '?'} without finishing"


_RULES: tuple[Callable[[_Case], _Ending | None], ...] = (
    _alarm,
    _worthless,
    _watchdog,
    _complete,
    _cancelled,
    _gpu_memory,
    _disk,
    _hang,
    _not_armed,
    _killed,
    _callback,
    _error,
    _vanished,
    _unfinished,
)


def _where(case: _Case) -> str:
    if case.last_step is None:
        return "before the first step"
    if case.planned is not None and case.last_step >= case.planned:
        return f"after the last step ({case.last_step})"
    return f"at step {case.last_step} of {case.planned or '?'}"


def _non_finite(event: Event) -> bool:
    values = (event.get("loss"), event.get("grad_norm"))
    return any(value is not None and not math.isfinite(value) for value in values)


def _collapsed(event: Event) -> bool:
    """A loss of exactly 0 with a live gradient is normal for some RL losses."""
    return event.get("loss") == 0.0 and not event.get("grad_norm")
