"""How a run ends, whatever happens to its process.

A run has ended when its outcome is decided, or when the server says Cancelling. Then its pods are
given back, the report is written and people are told. A process that is merely told to stop, that
loses the API, or that is killed decides nothing: it leaves everything as it is, and `revive` starts
it again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from prefect.client.schemas.objects import State
from prefect.exceptions import TerminationSignal
from prefect.states import Cancelled, Completed, Failed

from blocks.logs import log
from runner.errors import Outcome, RunEnded, state_name
from runner.locks import hold
from runner.secrets import scrub, scrub_file
from tasks.api import API_AWAY, ApiLost
from tasks.diagnosing import diagnosis_of
from tasks.keeping import KEPT, kept_words
from tasks.pod_logs import keep_logs
from tasks.pod_run import is_cancelling
from tasks.report import report
from tasks.run import Run, open_run, parent_lock
from tasks.safety import is_only_copy, leave_to_guard
from tasks.standing import attempts, recall, remember
from tasks.stopping import SAVED_FIRST, save_first
from tasks.teardown import teardown

ONLY_COPY = "its pod holds the only copy of what was trained and is left to its guard"


@dataclass(frozen=True)
class End:
    """A decided outcome, its one-line reason, and the hub repository that holds the model."""

    outcome: Outcome
    reason: str
    published: str | None = None


def to_its_end(run_id: str, steps: Callable[[Run], str | None]) -> State[Any]:
    """Run `steps` as the one living parent of this run and end the run; a decided run is only
    ended.

    `steps` returns the hub repository of the model, if any, and raises RunEnded for every other
    outcome.
    """
    with hold(parent_lock(run_id), wait=True):
        run = open_run(run_id)
        end = decided(run_id) or _outcome(run, steps)
        return finish(run, end)


def decided(run_id: str) -> End | None:
    """The outcome that was decided before this process began, None while the run is open."""
    facts = recall(run_id)
    if "outcome" not in facts:
        return None
    return End(facts["outcome"], facts.get("reason", ""), facts.get("published"))  # type: ignore[arg-type]


def finish(
    run: Run,
    end: End,
    *,
    teardown: Callable[[str], Any] = teardown,
    report: Callable[..., Any] = report,
) -> State[Any]:
    """Write the outcome down, give the pods back, report, tell; safe to repeat. Hooks pass the
    plain functions.
    """
    end = replace(end, reason=scrub(end.reason))
    remember(
        run.id, {"outcome": end.outcome, "reason": end.reason, "published": end.published or ""}
    )
    if _keeps_pod(run, end):
        if KEPT not in end.reason and (words := kept_words(run)):
            end = replace(end, reason=f"{end.reason}; {words}")
            remember(run.id, {"reason": end.reason})
    else:
        if end.outcome in SAVED_FIRST:
            save_first(run, end.outcome)
        if end.outcome != "cancelled" and (why := is_only_copy(run.id)):
            end = replace(end, reason=f"{end.reason}; {ONLY_COPY}: {why}")
            remember(run.id, {"reason": end.reason})
            teardown = leave_to_guard
        if end.outcome not in ("completed", "cancelled"):  # the latter has 30 s in all
            keep_logs(run.id, recall(run.id))
        teardown(run.id)
        # Of a local pod, whose volume stays here, and what pods have sent.
        for log_file in (*run.folder.glob("*.log"), *run.folder.glob("logs/*/*.log")):
            scrub_file(log_file)
    report(run, end.outcome, end.reason, end.published)
    return _state(run.id, end)


def _outcome(run: Run, steps: Callable[[Run], str | None]) -> End:
    try:
        published = steps(run)
    except RunEnded as ended:
        return End(ended.outcome, str(ended))
    except TerminationSignal:
        if is_cancelling(run.id):
            finish(run, End("cancelled", "cancelled by the user"))
        raise
    except API_AWAY as away:
        raise ApiLost(f"the Prefect API is away: {away}") from away
    except Exception as bug:
        log().exception("The run failed in our own code")
        return End("crash", f"{type(bug).__name__}: {bug}")
    return End("completed", "trained to the planned last step", published)


def _keeps_pod(run: Run, end: End) -> bool:
    """Not after the ends that are about money and time: a kept pod costs both."""
    ended = ("cancelled", *SAVED_FIRST)
    return end.outcome not in ended and recall(run.id).get("keep_pod") == "yes"


def _state(run_id: str, end: End) -> State[Any]:
    """The state that the UI shows: the outcome's name, the reason, what to do, the last lines."""
    if end.outcome == "completed":
        return Completed(message=end.reason)
    if end.outcome == "cancelled":
        return Cancelled(message=end.reason)
    done = attempts(run_id)
    found = diagnosis_of(run_id, end.outcome, end.reason, done)
    tail = "\n".join(done[-1].tail if done else found.lines if found else ())
    parts = [end.reason, found.sentence if found else "", tail]
    message = "\n\n".join(part for part in parts if part)
    return Failed(name=state_name(end.outcome), message=scrub(message))
