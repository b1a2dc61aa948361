"""Send a trainer that waits after an alarm back to a checkpoint, in its own process.

What was done already is read from the volume, so a follower that dies anywhere in here is followed
by one that goes on: the command in control.json is given once, trainer.json names the new attempt
only after the trainer has answered.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from blocks.logs import log
from pod import events, trainer
from pod.rundir import RunDir, read_json, write_json
from tasks.starting import Plan, choose_start

ANSWER_WITHIN = 60.0  # it looks ten times a second; the rest is for a volume that is slow


def waits(seen: list[events.Event], attempt: int) -> bool:
    """True when the attempt ended by an alarm after which its trainer waits for a decision."""
    alarms = [e for e in seen if e["attempt"] == attempt and e["kind"] == "alarm"]
    return bool(alarms and alarms[-1].get("waiting"))


def was_rewound(folder: RunDir, attempt: int) -> bool:
    """True when a living trainer was sent back for this attempt, by whomever."""
    seen, _ = events.read(folder.events)
    return any(event["attempt"] == attempt and event["kind"] == "rewound" for event in seen)


def rewind(
    folder: RunDir,
    plan: Plan,
    living: trainer.Trainer,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> trainer.Trainer | None:
    """The same process as the trainer of this attempt; None when a new process must do it.

    That is so when the trainer does not wait, when there is no checkpoint to go back to, when
    axolotl must be given other values, and when it does not answer in time.
    """
    seen, _ = events.read(folder.events)
    if not waits(seen, living.attempt):
        return None
    if not _is_asked(folder, plan) and not _ask(folder, plan):
        return None
    if not _answers(folder, plan, living, clock, sleep):
        log().warning("The trainer did not go back within %.0f s", ANSWER_WITHIN)
        return None
    record = {"pid": living.pid, "start": living.start, "attempt": plan.n}
    write_json(folder.trainer_pid, record)
    return trainer.Trainer(living.pid, living.start, plan.n, folder)


def _is_asked(folder: RunDir, plan: Plan) -> bool:
    command = read_json(folder.control) or {}
    return command.get("cmd") == "rewind" and command.get("attempt") == plan.n


def _ask(folder: RunDir, plan: Plan) -> bool:
    given = read_json(folder.attempt_file) or {}
    if dict(plan.overrides) != (given.get("overrides") or {}):
        return False  # the living trainer has the values of its own start
    checkpoint = choose_start(folder, plan)
    if checkpoint is None:
        return False
    trainer.request(folder, "rewind", attempt=plan.n, checkpoint=str(checkpoint.path))
    return True


def _answers(
    folder: RunDir,
    plan: Plan,
    living: trainer.Trainer,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> bool:
    deadline = clock() + ANSWER_WITHIN
    while clock() < deadline:
        alive = living.alive()  # first, so that a last word of a dying one is still read
        if was_rewound(folder, plan.n):
            return True
        if not alive:
            return False
        sleep(0.05)
    return False
