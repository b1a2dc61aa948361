"""A training that must end although it is healthy: it saves first, and its checkpoint is brought to
safety, before its pod goes.

Not by cancelling: Prefect kills a cancelled flow after 30 seconds, which is too short for a large
checkpoint. The parent leaves the word `axr.stop` on the child's flow run; the follower on the pod
answers with `axr.stopping`, stops the trainer, stores what it saved, and ends as usual.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import cast, get_args
from uuid import UUID

from prefect.client.schemas.objects import FlowRun

from blocks.logs import log
from runner.errors import ConfigError, Outcome
from tasks.api import API_AWAY, api
from tasks.lease import renew
from tasks.run import Run, open_order
from tasks.safety import STORE_WITHIN
from tasks.standing import children, facts_of, leave_words

# Ends that are decided while all is well with the training.
SAVED_FIRST: frozenset[Outcome] = frozenset({"budget", "deadline"})
LOOK_EVERY = 5.0
ANSWER_WITHIN = 60.0
# The trainer's step and its checkpoint.
SAVE_WITHIN = 300.0


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
        leave_words(str(child.id), {"stop": why})
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
            leave_words(self.flow_run, {"stopping": "yes"})
        except API_AWAY:
            return None
        return cast(Outcome, word)


def _trainings(run_id: str) -> list[FlowRun]:
    return [
        child
        for child in children(run_id)
        if child.name.startswith("train-") and child.state and child.state.is_running()
    ]


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
