"""What an attempt did, read from the evidence on the volume."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from blocks.logs import log
from pod import events, ledger, logtail, verdict
from pod.rundir import RunDir
from runner.attempts import AttemptFacts, CheckpointFact
from runner.curve import curve_points, eval_points, thin
from runner.diagnosis import DISK_FULL, Diagnosis, diagnose
from runner.errors import Outcome, RunEnded
from runner.postmortem import post_mortem
from runner.report import Rung
from runner.secrets import scrub, scrub_plain
from tasks.starting import Plan, noted

CURVE_POINTS = 300
EVAL_POINTS = 60
TAIL_BYTES = 256 * 1024  # a rank that fails makes each other one print some kB


def read_facts(
    folder: RunDir, plan: Plan, *, exit_code: int | None = None, outcome: Outcome | None = None
) -> AttemptFacts:
    """What the evidence on the volume says of an attempt that has ended; `outcome` overrides its
    own.

    The trainer may live: after an alarm it waits for the next attempt.
    """
    every, _ = events.read(folder.events)
    # Before anything is cut: half a secret is found by nobody. Only errors hold others' words.
    seen = [
        scrub_plain(event) if event["kind"] == "error" else event
        for event in every
        if event["attempt"] == plan.n
    ]
    tail = _tail(folder.trainer_log)
    judged = verdict.judge(
        seen,
        attempt=plan.n,
        alive=False,
        exit_code=exit_code,
        log_tail=tail,
        out=folder.out,
    )
    assert judged is not None, "a trainer that is not alive always gets a verdict"
    why = diagnose(
        judged.outcome,
        judged.reason,
        logtail.of_attempt(tail, plan.n),
        error=_error(seen),
        exit_code=exit_code,
    )
    _set_aside(folder, plan, judged.onset_step, broken=why is not None and why.kind == DISK_FULL)
    facts = _diagnosed(_facts(folder, plan, seen, judged), why)
    return replace(facts, outcome=outcome, reason=outcome, diagnosis=None) if outcome else facts


def refused(folder: RunDir, plan: Plan, why: RunEnded) -> AttemptFacts:
    """The facts of an attempt whose trainer was not even started."""
    return AttemptFacts(
        plan.n,
        why.outcome,
        str(why),
        from_checkpoint=noted(folder, plan.n).get("from_checkpoint"),
        rung=plan.rung,
        pod=os.environ.get("AXR_POD"),
        cloud=os.environ.get("AXR_CLOUD"),
        checkpoints=_checkpoints(folder),
        diagnosis=diagnose(why.outcome, str(why)),
    )


def _error(seen: Sequence[events.Event]) -> str:
    """What the trainer itself told of its error, empty when it told nothing."""
    told = [event for event in seen if event["kind"] == "error"]
    return f"{told[-1]['error']}: {told[-1].get('message') or ''}" if told else ""


def _diagnosed(facts: AttemptFacts, why: Diagnosis | None) -> AttemptFacts:
    """The attempt with what it failed of. The first one that fails before its first step for the
    task file's own fault is a `config_error`: nothing was trained, and no attempt can mend it.
    """
    facts = replace(facts, diagnosis=why)
    untrained = facts.n == 1 and facts.first_step is None
    if why and facts.outcome == "crash" and untrained:
        return replace(facts, outcome=why.outcome)
    return facts


def _set_aside(folder: RunDir, plan: Plan, onset: int | None, *, broken: bool) -> None:
    """Quarantine what was saved from the onset on at once: no attempt may follow that does it; and
    `broken` checkpoints, which a full disk leaves.

    Once the next attempt has begun, checkpoints of these steps are its own.
    """
    if not noted(folder, plan.n) or (onset is None and not broken):
        return
    late = any(onset is not None and each.step >= onset for each in ledger.checkpoints(folder))
    if (broken or late) and (moved := ledger.quarantine(folder, onset=onset, attempt=plan.n)):
        log().warning("Set aside: %s", ", ".join(moved))


def _facts(
    folder: RunDir, plan: Plan, seen: list[events.Event], judged: verdict.Verdict
) -> AttemptFacts:
    orders = noted(folder, plan.n)
    points = thin(curve_points(seen), CURVE_POINTS)
    evals = thin(eval_points(seen), EVAL_POINTS)
    quarantine = folder.quarantine
    return AttemptFacts(
        n=plan.n,
        outcome=judged.outcome,
        reason=judged.reason,
        from_checkpoint=orders.get("from_checkpoint"),
        first_step=judged.first_step,
        last_step=judged.last_step,
        onset_step=judged.onset_step,
        alarm_step=judged.alarm_step,
        planned_steps=judged.planned_steps,
        final_loss=judged.final_loss,
        rung=_done(orders.get("rung", plan.rung), seen),
        note="; ".join(note for note in (judged.note, _shared(seen)) if note) or None,
        pod=os.environ.get("AXR_POD"),
        cloud=os.environ.get("AXR_CLOUD"),
        trainer_seconds=round(time.time() - orders["started"], 3) if "started" in orders else None,
        tail=tuple(judged.tail),
        checkpoints=_checkpoints(folder),
        quarantined=tuple(sorted(entry.name for entry in quarantine.iterdir()))
        if quarantine.is_dir()
        else (),
        curve=tuple((point.step, _json_number(point.loss)) for point in points),
        evals=tuple((point.step, _json_number(point.loss)) for point in evals),
        postmortem=post_mortem(seen),
    )


def _done(rung: Rung | None, seen: Sequence[events.Event]) -> Rung | None:
    """The rung as it was carried out: a trainer that can't be re-entered skips from its checkpoint
    on.
    """
    for event in seen:
        if event["kind"] == "decision" and event.get("cmd") == "skip" and "first" in event and rung:
            return {**rung, "first": event["first"], "last": event["last"]}
    return rung


def _shared(seen: Sequence[events.Event]) -> str | None:
    """What was done about another number of GPUs than planned."""
    told = [e for e in seen if e["kind"] == "decision" and e.get("cmd") == "share"]
    if not told:
        return None
    return f"{told[-1]['rows']} rows a step from {told[-1]['now']}, planned {told[-1]['before']}"


def _checkpoints(folder: RunDir) -> tuple[CheckpointFact, ...]:
    return tuple(
        CheckpointFact(entry.step, entry.health, str(entry.path.relative_to(folder.path)))
        for entry in ledger.checkpoints(folder)
    )


def _json_number(value: float | None) -> float | str | None:
    return value if value is None or math.isfinite(value) else str(value)


def _tail(path: Path) -> str:
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        return scrub(file.read().decode(errors="replace"))
