"""One attempt on the pod: start the trainer or attach to it, follow its events, judge how it ended.

The trainer is a process of the pod, not of the flow: it goes on when the flow dies, and the next
flow attaches to it. So there is never a second trainer, and nothing here trusts an exit code.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prefect import task
from prefect.logging import get_run_logger

from pod import events, ledger, trainer, verdict
from pod.rundir import RunDir, read_json, write_json
from runner.attempts import AttemptFacts, CheckpointFact
from runner.curve import curve_points, thin
from runner.errors import Outcome
from runner.report import Rung
from runner.taskfile import parse_task_file

# After its last word (end, alarm, error) the trainer has this long to leave by itself: W&B may
# never let it go.
GRACE = 60.0
CURVE_POINTS = 300
TAIL_BYTES = 64 * 1024


@dataclass(frozen=True)
class Plan:
    """What an attempt is to do; `before` is the onset of the alarm that it comes after."""

    n: int
    before: int | None = None
    rung: Rung | None = None


@task
def start_or_attach(
    folder: RunDir, plan: Plan, environment: Mapping[str, str] = os.environ
) -> trainer.Trainer | None:
    """The trainer of this attempt: the living one, a new one, or None when it has already ended."""
    log = get_run_logger()
    living = trainer.find(folder)
    if living and living.attempt == plan.n:
        log.info("Attached to the trainer of attempt %s (pid %s)", plan.n, living.pid)
        return living
    if living:
        log.warning("The trainer of attempt %s is still there; it is ended first", living.attempt)
        living.stop(grace_s=GRACE)
    if _was_started(folder, plan.n):
        return None
    checkpoint = _choose_start(folder, plan)
    axolotl_env = Path(environment["AXR_AXOLOTL_ENV"])
    started = trainer.start(
        folder,
        trainer.command(axolotl_env / "bin" / "axolotl", folder, resume_from=checkpoint),
        trainer.trainer_environment(
            {**environment, "PYTHONPATH": environment["AXR_REPOSITORY"]},
            axolotl_env=axolotl_env,
            run_dir=folder,
            gpu=Path("/dev/nvidia0").exists(),
        ),
        attempt=plan.n,
        cwd=Path(environment["AXR_REPOSITORY"]),
    )
    log.info(
        "Attempt %s: trainer started (pid %s), from %s",
        plan.n,
        started.pid,
        checkpoint or "the start",
    )
    return started


@task
def follow_trainer(
    folder: RunDir,
    plan: Plan,
    process: trainer.Trainer | None,
    show: Callable[[list[events.Event]], None],
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> AttemptFacts:
    """Follow the trainer to its end, showing each new event, and judge it by the evidence."""
    follower = events.Follower(folder.events)
    last_word_at: float | None = None
    while True:
        living = process is not None and process.alive()
        new = [event for event in follower.poll() if event["attempt"] == plan.n]
        show(new)
        if any(event["kind"] in ("end", "alarm", "error") for event in new):
            last_word_at = time.monotonic()
        if not living:
            break
        if process and last_word_at and time.monotonic() - last_word_at > GRACE:
            get_run_logger().warning("The trainer has finished but does not leave; it is ended")
            process.stop(grace_s=0)
        sleep(0.2)
    return read_facts(folder, plan, exit_code=process.exit_code() if process else None)


def read_facts(
    folder: RunDir, plan: Plan, *, exit_code: int | None = None, outcome: Outcome | None = None
) -> AttemptFacts:
    """What the evidence on the volume says of an attempt whose trainer is gone; `outcome` overrides
    its own.
    """
    every, _ = events.read(folder.events)
    seen = [event for event in every if event["attempt"] == plan.n]
    judged = verdict.judge(
        seen,
        attempt=plan.n,
        alive=False,
        exit_code=exit_code,
        log_tail=_tail(folder.trainer_log),
        out=folder.out,
    )
    assert judged is not None, "a trainer that is not alive always gets a verdict"
    facts = _facts(folder, plan, seen, judged)
    return replace(facts, outcome=outcome, reason=outcome) if outcome else facts


def _was_started(folder: RunDir, attempt: int) -> bool:
    record = read_json(folder.trainer_pid)
    return record is not None and record.get("attempt") == attempt


def _choose_start(folder: RunDir, plan: Plan) -> Path | None:
    """Set aside what the spike may have touched, pick the newest healthy checkpoint, note the
    attempt.
    """
    log = get_run_logger()
    checkpoint = None
    if plan.n > 1:
        moved = ledger.quarantine(folder, onset=plan.before, attempt=plan.n - 1)
        if moved:
            log.warning("Set aside: %s", ", ".join(moved))
        checkpoint = ledger.pick(folder, before=plan.before)
    settings = parse_task_file(folder.task_file.read_text("utf-8"), folder.task_file.name).settings
    write_json(
        folder.attempt_file,
        {
            "attempt": plan.n,
            "from_checkpoint": checkpoint.step if checkpoint else None,
            "rung": plan.rung,
            "spike": settings.spike.detector_arguments(),
            "guard": settings.spike.enabled,
            "started": time.time(),
        },
    )
    return checkpoint.path if checkpoint else None


def _facts(
    folder: RunDir, plan: Plan, seen: list[events.Event], judged: verdict.Verdict
) -> AttemptFacts:
    noted: dict[str, Any] = read_json(folder.attempt_file) or {}
    points = thin(curve_points(seen), CURVE_POINTS)
    quarantine = folder.quarantine
    return AttemptFacts(
        n=plan.n,
        outcome=judged.outcome,
        reason=judged.reason,
        from_checkpoint=noted.get("from_checkpoint"),
        first_step=judged.first_step,
        last_step=judged.last_step,
        onset_step=judged.onset_step,
        alarm_step=judged.alarm_step,
        planned_steps=judged.planned_steps,
        final_loss=judged.final_loss,
        rung=plan.rung,
        note=judged.note,
        pod=os.environ.get("AXR_POD"),
        cloud=os.environ.get("AXR_CLOUD"),
        trainer_seconds=round(time.time() - noted["started"], 3) if "started" in noted else None,
        tail=tuple(judged.tail),
        checkpoints=tuple(
            CheckpointFact(entry.step, entry.health) for entry in ledger.checkpoints(folder)
        ),
        quarantined=tuple(sorted(entry.name for entry in quarantine.iterdir()))
        if quarantine.is_dir()
        else (),
        curve=tuple((point.step, _json_number(point.loss)) for point in points),
    )


def _json_number(value: float | None) -> float | str | None:
    return value if value is None or math.isfinite(value) else str(value)


def _tail(log: Path) -> str:
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        return file.read().decode(errors="replace")
