"""What is on the volume before an attempt begins: its checkpoint chosen, its orders written.

Safe to repeat: a follower that died in the middle does all of it again, to the same end.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from blocks.logs import log
from pod import events, ledger, sharded
from pod.rundir import RunDir, read_json, write_json
from runner.batch import batch_of
from runner.ladder import NextAttempt
from runner.report import Rung
from runner.rungs import REPLAY, SCALED, Factors, factors_in_force
from runner.settings import RunnerSettings
from runner.sharing import Shares, batch_overrides, gpus_to_use, recorded, share_out
from runner.taskfile import TaskFile, parse_task_file

WHY_LENGTH = 300


@dataclass(frozen=True)
class Plan:
    """What an attempt is to do; `before` is the onset of the alarm that it comes after.

    `factors` are absolute (missing: 1), `overrides` are keys of axolotl, `why` is the trouble that
    it comes after, `last` says that no attempt would follow, `task_file` is where the task file
    lies in the repository.
    """

    n: int
    before: int | None = None
    rung: Rung | None = None
    factors: Mapping[str, float] = field(default_factory=dict)
    overrides: Mapping[str, int] = field(default_factory=dict)
    why: str = ""
    last: bool = False
    task_file: str | None = None

    @classmethod
    def of(cls, wanted: NextAttempt, task_file: str | None = None) -> Plan:
        """The plan of an attempt that the ladder decided."""
        return cls(
            wanted.n,
            wanted.before,
            wanted.rung,
            wanted.factors,
            wanted.overrides,
            wanted.why,
            wanted.last,
            task_file,
        )


def choose_start(folder: RunDir, plan: Plan) -> ledger.Checkpoint | None:
    """Set aside what the trouble may have touched, pick the newest healthy checkpoint, and write
    the attempt down: in attempt.json for the trainer, in events.jsonl for people.
    """
    checkpoint = None
    if plan.n > 1:
        moved = ledger.quarantine(folder, onset=plan.before, attempt=plan.n - 1)
        if moved:
            log().warning("Set aside: %s", ", ".join(moved))
        checkpoint = ledger.pick(folder, before=plan.before)
    rung = _fitting(plan.rung, checkpoint.step if checkpoint else 0)
    _write_attempt(folder, plan, checkpoint, rung)
    if plan.rung is not None:
        _tell(folder, plan, checkpoint, rung)
    return checkpoint


def choose_shares(
    folder: RunDir, plan: Plan, checkpoint: ledger.Checkpoint | None, gpus: int
) -> tuple[Shares, Plan]:
    """Who makes up a step of the attempt on this pod, which shows so many GPUs, and the plan with
    the batch that this takes: a step keeps its rows. What that changes is told once.

    ConfigError, with what to do, when it can't be.
    """
    task = _task(folder)
    asked = task.settings.gpu_count
    before = recorded(_batch(folder, checkpoint)) if checkpoint else None
    name = checkpoint.path.name if checkpoint else ""
    shares = share_out(
        task.axolotl,
        gpus=gpus_to_use(gpus, asked),
        asked=asked,
        overrides=plan.overrides,
        before=before,
        checkpoint=name,
        written_in_parts=checkpoint is not None and sharded.holds_weights(checkpoint.path),
    )
    steps = _planned_steps(checkpoint) if checkpoint else None
    overrides = batch_overrides(task.axolotl, plan.overrides, shares, steps)
    was = before or Shares(asked[0], batch_of({**task.axolotl, **plan.overrides}))
    if shares.processes != was.processes or (shares != was and overrides != plan.overrides):
        _tell_shares(folder, plan, checkpoint, shares, was)
    return shares, replace(plan, overrides=overrides)


def noted(folder: RunDir, attempt: int) -> dict[str, Any]:
    """attempt.json, empty when it is about another attempt."""
    found = read_json(folder.attempt_file)
    return found if found is not None and found.get("attempt") == attempt else {}


def _fitting(rung: Rung | None, start: int) -> Rung | None:
    """The rung for the checkpoint that was picked in the end: steps in it can't be skipped."""
    if rung is None or rung.get("kind") != "skip":
        return rung
    first, last = (int(str(rung[name])) for name in ("first", "last"))
    return {**rung, "first": max(first, start + 1)} if start < last else REPLAY


def _write_attempt(
    folder: RunDir, plan: Plan, checkpoint: ledger.Checkpoint | None, rung: Rung | None
) -> None:
    settings = _task(folder).settings
    write_json(
        folder.attempt_file,
        {
            "attempt": plan.n,
            "from_checkpoint": checkpoint.step if checkpoint else None,
            "rung": rung,
            "factors": _factors(plan),
            "overrides": dict(plan.overrides),
            "why": plan.why[:WHY_LENGTH],
            "spike": settings.spike.detector_arguments(),
            "guard": settings.spike.enabled,
            "warm_seconds": _warm_seconds(settings, plan),
            "hang_minutes": settings.resume.hang_minutes,
            "log_eval": settings.log_eval,
            "callbacks": list(settings.callbacks),
            "started": time.time(),
        },
    )


def _factors(plan: Plan) -> Factors:
    given = plan.factors or factors_in_force([plan.rung])
    return {name: float(given.get(name, 1.0)) for name in SCALED}


def _warm_seconds(settings: RunnerSettings, plan: Plan) -> int:
    """Nobody will send the trainer back when no attempt may follow: then it says what it knows and
    ends.
    """
    resume = settings.resume
    return 0 if plan.last or not resume.enabled else resume.warm_seconds


def _tell(
    folder: RunDir, plan: Plan, checkpoint: ledger.Checkpoint | None, rung: Rung | None
) -> None:
    """Why there is another attempt and what it changes, once."""
    if _is_told(folder, plan, "resume"):
        return
    events.append(
        folder.events,
        "decision",
        plan.n,
        checkpoint.step if checkpoint else 0,
        cmd="resume",
        from_checkpoint=checkpoint.step if checkpoint else None,
        rung=rung,
        why=plan.why[:WHY_LENGTH],
    )


def _tell_shares(
    folder: RunDir,
    plan: Plan,
    checkpoint: ledger.Checkpoint | None,
    shares: Shares,
    was: Shares,
) -> None:
    """The same rows from other processes, once."""
    log().warning("%s rows a step from %s; planned: %s", shares.rows, shares, was)
    if _is_told(folder, plan, "share"):
        return
    events.append(
        folder.events,
        "decision",
        plan.n,
        checkpoint.step if checkpoint else 0,
        cmd="share",
        rows=shares.rows,
        now=str(shares),
        before=str(was),
        **shares.record(),
    )


def _is_told(folder: RunDir, plan: Plan, cmd: str) -> bool:
    so_far, _ = events.read(folder.events)
    return any((e["kind"], e["attempt"], e.get("cmd")) == ("decision", plan.n, cmd) for e in so_far)


def _batch(folder: RunDir, checkpoint: ledger.Checkpoint) -> dict[str, int] | None:
    """What made up the steps up to this checkpoint; of an unrecorded one, what an other says."""
    others = [] if checkpoint.batch else reversed(ledger.checkpoints(folder))
    return next((each.batch for each in (checkpoint, *others) if each.batch), None)


def _planned_steps(checkpoint: ledger.Checkpoint) -> int | None:
    state = read_json(checkpoint.path / "trainer_state.json") or {}
    return int(state.get("max_steps") or 0) or None


def _task(folder: RunDir) -> TaskFile:
    return parse_task_file(folder.task_file.read_text("utf-8"), folder.task_file.name)
