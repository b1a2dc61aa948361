"""What one attempt knows of its run, and the events it writes; no torch in here.

Holds the spike detector, warm from the steps that led to the checkpoint it starts from, and what
the attempt is to do differently (pod.rungs).
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict
from typing import Any

from pod import events, rungs
from pod.ledger import Recorder
from pod.rundir import RunDir
from pod.spikes import Alarm, SpikeDetector
from pod.window import Row, Window, window_of

# A checkpoint is proven when so many log entries came after it without an alarm. A jump is certain
# within a few entries, a drift may take a hundred.
PROVEN_AFTER = (12, 100)


class Reporter:
    """Writes the events of one attempt; on ranks other than 0 (`writes` False) it only thinks."""

    def __init__(self, run_dir: RunDir, attempt: dict[str, Any], *, writes: bool = True) -> None:
        self.run_dir = run_dir
        self.attempt: int = attempt["attempt"]
        self.from_step: int = attempt.get("from_checkpoint") or 0
        self.rung: dict[str, Any] | None = attempt.get("rung")
        self.change = rungs.wanted(attempt)
        self.warm_seconds = float(attempt.get("warm_seconds") or 0.0)
        self.writes = writes
        self.log_eval = bool(attempt.get("log_eval"))
        self.callbacks: tuple[str, ...] = tuple(attempt.get("callbacks") or ())
        self.detector = _detector(attempt)
        self.recorder = Recorder(run_dir, attempt=self.attempt, rung=self.rung)
        self._logged: deque[int] = deque(maxlen=max(PROVEN_AFTER) + 1)
        past, _ = events.read(run_dir.events)
        self.window = window_of(past, attempt=self.attempt - 1)
        self._learn_from(past)

    def armed(self, *, planned_steps: int | None, logging_steps: float, save_steps: float) -> None:
        """The trainer is guarded from here on."""
        self._append(
            "armed",
            0,
            planned_steps=planned_steps,
            logging_steps=logging_steps,
            save_steps=save_steps,
        )

    def step(
        self,
        step: int,
        *,
        loss: float | None,
        grad_norm: float | None,
        lr: float | None,
        epoch: float | None,
        tokens_per_second: float | None = None,
    ) -> Alarm | None:
        """Take one entry of the training log; returns the alarm if this entry made it certain."""
        pace = {} if tokens_per_second is None else {"tokens_per_second": tokens_per_second}
        self._append("step", step, loss=loss, grad_norm=grad_norm, lr=lr, epoch=epoch, **pace)
        self._logged.append(step)
        return None if self.detector is None else self.detector.update(step, loss, grad_norm)

    def rewound(self, *, seq: int, step: int) -> None:
        """The trainer goes back to the checkpoint of `step`, in the same process."""
        self._append("rewound", step, seq=seq, from_checkpoint=step, rung=self.rung)

    def changed(
        self, step: int, factors: rungs.Factors, skip: rungs.Skip | None, **now: Any
    ) -> None:
        """The attempt's rung is done; `now` says what optimizer and schedule have by now."""
        self.recorder.factors = asdict(factors)
        if self.change.kind is not None:
            done = self.change.skip is None or skip is not None
            fields = {"cmd": self.change.kind, "done": done, "factors": asdict(factors), **now}
            self._append("decision", step, **fields, **(asdict(skip) if skip else {}))

    def alarm(self, alarm: Alarm, *, logging_steps: int = 1, waiting: bool = False) -> int:
        """Write the alarm and return its onset; `waiting` when the trainer can be rewound.

        An entry covers the last `logging_steps` steps, so trouble may have begun at the first
        of them, but not before the entry before it.
        """
        earlier = max((step for step in self._logged if step < alarm.onset_step), default=0)
        onset = max(earlier + 1, alarm.onset_step - logging_steps + 1)
        self._append(
            "alarm",
            alarm.step,
            onset_step=onset,
            alarm=alarm.kind,
            reason=alarm.reason,
            waiting=waiting,
        )
        return onset

    def own_window(self) -> Window | None:
        """The steps around this attempt's own alarm, None when it had none."""
        return window_of(events.read(self.run_dir.events)[0], attempt=self.attempt)

    def postmortem(self, window: Window, rows: list[Row]) -> None:
        """What was trained around an alarm, worst first."""
        self._append(
            "postmortem",
            window.alarm_step,
            of_attempt=window.of_attempt,
            first=window.first,
            last=window.last,
            rows=[asdict(row) for row in rows],
            lr=window.lr,
            grad_norm=window.grad_norm,
        )

    def save(self, step: int) -> None:
        """A checkpoint is on disk: say so, and let it be recorded and kept."""
        suspect_since = None if self.detector is None else self.detector.suspect_since
        healthy = suspect_since is None or step < suspect_since
        self._append(
            "save",
            step,
            checkpoint=f"checkpoint-{step}",
            health="healthy" if healthy else "suspect",
        )
        if self.writes:
            proven = [self._entry_before(entries) for entries in PROVEN_AFTER]
            self.recorder.submit(step, "healthy" if healthy else "suspect", proven=proven)

    def eval(self, step: int, metrics: dict[str, Any]) -> None:
        """An evaluation's numbers."""
        numbers = {k: float(v) for k, v in metrics.items() if isinstance(v, int | float)}
        self._append("eval", step, **numbers)

    def decision(self, step: int, *, seq: int, cmd: str, done: bool) -> None:
        """The answer to control.json."""
        self._append("decision", step, seq=seq, cmd=cmd, done=done)

    def error(
        self, *, error: str, message: str, cuda_oom: bool, step: int, any_rank: bool = False
    ) -> None:
        """The trainer fails with this exception; said by rank 0, or by `any_rank`."""
        if self.writes or any_rank:
            events.append(
                self.run_dir.events,
                "error",
                self.attempt,
                step,
                error=error,
                message=message,
                cuda_oom=cuda_oom,
            )

    def end(
        self,
        *,
        step: int,
        planned_steps: int | None,
        stopped: bool,
        early: bool,
        files: list[str],
        final_loss: float | None,
    ) -> None:
        """The trainer has written its final model and is done."""
        self._append(
            "end",
            step,
            planned_steps=planned_steps,
            finished=planned_steps is not None and step >= planned_steps,
            stopped=stopped,
            early=early,
            files=files,
            final_loss=final_loss,
        )

    def _entry_before(self, entries: int) -> int:
        """The step of the log entry that so many entries came after, 0 if there is none yet."""
        return self._logged[-1 - entries] if len(self._logged) > entries else 0

    def _learn_from(self, past: list[events.Event]) -> None:
        for event in events.kept_steps(past, before_attempt=self.attempt, up_to=self.from_step):
            self._logged.append(event["step"])
            if self.detector is None:
                continue
            loss, grad_norm = event.get("loss"), event.get("grad_norm")
            if self.detector.update(event["step"], loss, grad_norm) is not None:
                self.detector.reset()  # old history never stops a new attempt

    def _append(self, kind: str, step: int, **fields: Any) -> None:
        if self.writes:
            events.append(self.run_dir.events, kind, self.attempt, step, **fields)


def number(value: Any) -> float | None:
    """A log value as a float; None for what is no number (some trainers log text)."""
    try:
        return None if value is None else float(value)
    except ValueError:
        return None


def _detector(attempt: dict[str, Any]) -> SpikeDetector | None:
    if not attempt.get("guard", True):
        return None
    settings = dict(attempt.get("spike") or {})
    if not settings.pop("enabled", True):
        return None
    return SpikeDetector(**{key: value for key, value in settings.items() if value is not None})
