"""A training that must end although it is healthy: it saves first, and its checkpoint is brought to
safety, before its pod goes.

Not by cancelling: Prefect kills a cancelled flow after 30 seconds, which is too short for a large
checkpoint. The parent leaves the word `axr.stop` on the child's flow run; the follower on the pod
answers with `axr.stopping`, stops the trainer, stores what it saved, and ends as usual.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import cast, get_args
from uuid import UUID

from prefect.client.schemas.objects import FlowRun

from blocks.clouds import is_rented
from blocks.logs import log
from pod.rundir import RunDir
from pod.saving import NotSaved, save_only_copy
from runner.errors import ConfigError, Outcome
from tasks.api import API_AWAY, api, write
from tasks.lease import renew
from tasks.run import Run, open_order
from tasks.standing import PREFIX, children, facts_of
from tasks.storing import wait_until_stored

# Ends that are decided while all is well with the training.
SAVED_FIRST: frozenset[Outcome] = frozenset({"budget", "deadline"})
LOOK_EVERY = 5.0
ANSWER_WITHIN = 60.0
# The trainer's step and its checkpoint, then the way to the store: 80 GB need a quarter of an hour.
SAVE_WITHIN = 300.0
STORE_WITHIN = 900.0


def save_first(
    run: Run,
    why: Outcome,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> None:
    """Have each running training of this run saved and ended; safe to repeat.

    Returns when they have ended, when their pod does not answer within ANSWER_WITHIN seconds, or
    after SAVE_WITHIN + STORE_WITHIN: what is left is ended with its pod.
    """
    for child in _trainings(run.id):
        with suppress(ConfigError):  # a task file that can't be read any more renews nothing
            renew(run, open_order(run.id), now(), spare=SAVE_WITHIN + STORE_WITHIN)
        _leave_word(str(child.id), {"stop": why})
        if not _wait_for_end(child, clock, sleep):
            log().warning("%s was asked to save and end, and has not: its pod is ended", child.name)


@dataclass
class AskedToStop:
    """On the pod: the outcome with which the parent wants this flow run to end, None while it may
    go on. Asks the server every LOOK_EVERY seconds; a server that is away wants nothing.
    """

    flow_run: str
    clock: Callable[[], float] = time.monotonic
    _next: float = field(default=float("-inf"), init=False)

    def __call__(self) -> Outcome | None:
        """The answer, None between two looks."""
        if self.clock() < self._next:
            return None
        self._next = self.clock() + LOOK_EVERY
        try:
            word = facts_of(api().read_flow_run(UUID(self.flow_run))).get("stop")
            if word not in get_args(Outcome):
                return None
            _leave_word(self.flow_run, {"stopping": "yes"})
        except API_AWAY:
            return None
        return cast(Outcome, word)


def bring_to_safety(
    folder: RunDir, run: str, environment: Mapping[str, str] = os.environ
) -> str | None:
    """Store what a stopped trainer has saved, as far as it would end with this pod; why that was
    not possible, None when it was.
    """
    if not is_rented(environment.get("AXR_CLOUD", "local")):
        wait_until_stored(folder, STORE_WITHIN)  # a copy: the run's own folder stays
        return None
    try:
        log().info("Saved: %s", save_only_copy(folder, run, environment, within=STORE_WITHIN))
    except NotSaved as failed:
        log().error("The checkpoint is on this pod alone: %s", failed)
        return str(failed)
    return None


def _trainings(run_id: str) -> list[FlowRun]:
    return [
        child
        for child in children(run_id)
        if child.name.startswith("train-") and child.state and child.state.is_running()
    ]


def _leave_word(flow_run: str, facts: Mapping[str, str]) -> None:
    labels: dict[str, str | int | float | bool] = {PREFIX + k: v for k, v in facts.items()}
    write(partial(api().update_flow_run_labels, UUID(flow_run), labels))


def _wait_for_end(
    child: FlowRun, clock: Callable[[], float], sleep: Callable[[float], None]
) -> bool:
    """Whether it has ended in time."""
    asked = clock()
    while True:
        found = api().read_flow_run(child.id)
        if found.state and found.state.is_final():
            return True
        within = SAVE_WITHIN + STORE_WITHIN if "stopping" in facts_of(found) else ANSWER_WITHIN
        if clock() - asked > within:
            return False
        sleep(1.0)
