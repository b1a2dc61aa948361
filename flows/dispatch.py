"""One push event → one `finetune` run for each changed task file."""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Cancelled, Completed, Failed

from blocks.logs import log
from runner.locks import hold
from tasks.dispatching import Refused, read_event
from tasks.ending import decided
from tasks.pushing import answer, repository_of, start_runs, what_to_do
from tasks.run import parent_lock


@flow(name="dispatch", persist_result=False)
def dispatch(
    repository: Any = None,
    commit: Any = None,
    files: Any = None,
    ref: Any = None,
    before: Any = None,
    event_resource: Any = None,
) -> State[Any]:
    """Start one run for each pushed task file; the same commit, path and content never start twice.

    Nothing is believed of an event but where to look: see tasks/dispatching.py.

    Args:
        repository: owner/name of a connected repository.
        commit: the pushed commit.
        files: one {path, blob} for each changed task file, or null.
        ref: the branch, as refs/heads/main.
        before: the commit that it was at, 40 zeros for none.
        event_resource: the resource of the event, where there is one.
    """
    with hold(parent_lock(str(flow_run.id)), wait=True):
        if decided(str(flow_run.id)):  # cancelled while its worker was away
            return Cancelled()
        try:
            told = read_event(repository, ref, before, commit, files, event_resource)
            source = repository_of(told)
            plan = what_to_do(source, told)
        except Refused as no:
            log().error("Refused: %s", no)
            return Failed(name="Refused", message=str(no))
        started = start_runs(source, told, plan)
        message = answer(source, told, plan, started)
        return (
            Failed(name="ConfigError", message=message) if plan.bad else Completed(message=message)
        )
