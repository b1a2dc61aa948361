"""The runs that could not be revived: ended from outside, so that their pods do not wait for them.

A revived run that waits for a place in the queue isn't counted: its pod trains, and the place will
come.
"""

from __future__ import annotations

from datetime import UTC, datetime

from prefect.client.schemas.objects import FlowRun, StateType

from blocks.logs import log
from deployments.revive import is_dead, parents, unfinished_parents
from runner.errors import RunnerError
from runner.locks import is_free
from runner.revival import LABEL, judge, read_death
from tasks.api import api
from tasks.ending import End
from tasks.from_outside import end_dead_run
from tasks.run import parent_lock
from tasks.standing import facts_of

QUEUE, POOL = "runs", "control"


def dead_parents() -> list[FlowRun]:
    """The runs that died and were not seen alive since."""
    found = unfinished_parents()
    return [run for run in found if LABEL in facts_of(run) and is_free(parent_lock(str(run.id)))]


def end_unrevivable(now: datetime | None = None) -> list[str]:
    """End the runs that stayed dead for too long or in spite of all revivals; the ids of those.

    A run that can't be ended yet (a cloud is away) is tried again by the next sweep.
    """
    moment = now or datetime.now(UTC)
    ended = []
    for run in dead_parents():
        if not is_given_up(run, moment):
            continue
        try:
            if end_dead_run(str(run.id), _end(run, moment)):
                ended.append(str(run.id))
        except RunnerError as error:
            log().error("The run %s can't be ended yet: %s", run.id, error)
        except Exception:  # a bug with one run must not keep the others
            log().exception("The run %s can't be ended", run.id)
    return ended


def is_given_up(run: FlowRun, now: datetime) -> bool:
    """Whether nothing more is expected of this dead run."""
    death = read_death(facts_of(run).get(LABEL))
    if death is None or run.state is None:
        return False
    if run.state.is_scheduled():
        return judge(death, run.run_count, now.timestamp()) == "give up" and places_are_free()
    if not is_dead(run, parent_lock(str(run.id)), now):
        return False
    return judge(death, run.run_count, now.timestamp()) == "give up"


def places_are_free() -> bool:
    """Whether the queue of runs would let one more begin."""
    queue = api().read_work_queue_by_name(QUEUE, work_pool_name=POOL)
    if queue.concurrency_limit is None:
        return True
    taken = parents(StateType.RUNNING, StateType.PENDING, StateType.CANCELLING)
    return len(taken) < queue.concurrency_limit


def _end(run: FlowRun, now: datetime) -> End:
    if run.state is not None and run.state.is_cancelling():
        return End("cancelled", "cancelled by the user")
    death = read_death(facts_of(run).get(LABEL))
    assert death is not None, "only runs that died are given up"
    minutes = (now.timestamp() - death.since) / 60
    return End(
        "crash",
        f"its process on the control machine died and could not be revived "
        f"({death.revivals} tries, {minutes:.0f} minutes)",
    )
