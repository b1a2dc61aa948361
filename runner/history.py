"""What the attempts so far leave to the next one: where to start, and what stays in force.

Everything is derived from the attempts' facts (oldest first), so a parent that is started again
comes to the same plan.

Not covered: two windows to pass over in one attempt, where a rollback goes far behind both.
"""

from __future__ import annotations

from collections.abc import Sequence

from runner.attempts import AttemptFacts, CheckpointFact
from runner.batch import Batch
from runner.report import Rung
from runner.rungs import REPLAY

Attempts = Sequence[AttemptFacts]


def start(attempts: Attempts) -> tuple[int | None, int | None]:
    """The checkpoint to start from (None: from the start), and the step before which it must lie.

    An attempt that did not get as far as a step knows nothing: the one before it counts.
    """
    known = next(
        (each for each in reversed(attempts) if each.first_step or each.checkpoints), attempts[-1]
    )
    before = _onset(attempts)
    return pick(known, before), before


def pick(attempt: AttemptFacts, before: int | None) -> int | None:
    """The checkpoint to start from when trouble began at step `before`; None: start over.

    The order is that of `pod.ledger.pick`, which sees the files and has the last word.
    """
    found = _ranked(attempt.checkpoints, before)
    return found[0].step if found else None


def kept(attempts: Attempts) -> str | None:
    """The last healthy checkpoint, as a path from the run's folder; None when there is none."""
    known = next((each for each in reversed(attempts) if each.checkpoints), None)
    found = _ranked(known.checkpoints, _onset(attempts)) if known else []
    healthy = [each for each in found if each.health != "suspect"]
    return (healthy[0].where or f"out/checkpoint-{healthy[0].step}") if healthy else None


def as_it_was(attempts: Attempts) -> Rung:
    """The rung that does again what was being done, from where it starts now.

    A window that was passed over and lies ahead is passed over again; moments are reset again
    when nothing was saved since.
    """
    begin = start(attempts)[0] or 0
    for attempt in reversed(attempts):
        rung, began = attempt.rung or REPLAY, attempt.from_checkpoint or 0
        if rung["kind"] == "skip" and whole(rung["last"]) > begin:
            first = max(whole(rung["first"]), begin + 1)
            return {"kind": "skip", "first": first, "last": rung["last"]}
        if rung.get("moments") == "reset" and attempt is attempts[-1] and begin <= began:
            return rung
        if began <= begin:
            break  # it trained every step from there on
    return REPLAY


def batch_in_force(attempts: Attempts) -> Batch | None:
    """The smaller batch that an attempt was given, None when it is still the task file's."""
    for attempt in reversed(attempts):
        rung = attempt.rung or REPLAY
        if "micro_batch_size" in rung:
            return _batch(rung)
    return None


def overrides(attempts: Attempts, rung: Rung) -> dict[str, int]:
    """Keys of axolotl that the next attempt, with this rung, needs to have other values.

    With another batch the plan is pinned, since rounding could move its length by a step.
    """
    batch = _batch(rung) if "micro_batch_size" in rung else batch_in_force(attempts)
    if batch is None:
        return {}
    planned = next((each.planned_steps for each in reversed(attempts) if each.planned_steps), None)
    return {
        "micro_batch_size": batch.micro,
        "gradient_accumulation_steps": batch.accumulation,
        **({"max_steps": planned} if planned else {}),
    }


def whole(value: object) -> int:
    """A whole number out of a rung, whose values may be of any plain type."""
    return int(str(value))


def _onset(attempts: Attempts) -> int | None:
    return next((each.onset_step for each in reversed(attempts) if each.first_step), None)


def _batch(rung: Rung) -> Batch:
    return Batch(whole(rung["micro_batch_size"]), whole(rung["gradient_accumulation_steps"]))


def _ranked(checkpoints: Sequence[CheckpointFact], before: int | None) -> list[CheckpointFact]:
    """Best first. Without an onset a suspect one is better than to start over; with one, the last
    before it comes last, for no loss was ever computed with its weights.
    """
    if before is None:
        return sorted(checkpoints, key=lambda each: (each.health == "suspect", -each.step))
    usable = [each for each in checkpoints if each.step < before and each.health != "suspect"]
    return sorted(
        usable,
        key=lambda each: (each.step == before - 1, each.health == "unrecorded", -each.step),
    )
