"""What the sweep does about each pod that some cloud lists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar, assert_never

from blocks.cloud import Pod
from blocks.clouds import cloud_of
from blocks.logs import log
from runner.deadlines import earliest, first_deadline
from runner.errors import RunnerError
from runner.idleness import due
from runner.pod_table import markdown_table, plain_table
from runner.sweeping import EndPod, EndRun, Leave, Standing, Tell, Verdict, judge
from tasks.budget import budget_deadline
from tasks.from_outside import complete_report, decide
from tasks.idling import note_idleness, tell_forwarding, tell_idle
from tasks.pods_artifact import show_pods
from tasks.sighting import Listing, Sighting, look_at, look_whose
from tasks.teardown import clear_away, end_pod, stop_children

T = TypeVar("T")
UNSEEN = Leave("could not be looked at")


@dataclass(frozen=True)
class Judged:
    """A pod as it was seen, how long it has been idle (minutes), and what is to be done."""

    seen: Sighting
    verdict: Verdict
    idle: float = 0.0


def sweep_pods(listing: Listing, now: datetime | None = None) -> list[Judged]:
    """Look at every pod of the listing, show the table, and do what is to be done about each.

    What fails for one pod is logged and tried again by the next sweep; the others have their turn.
    """
    moment = now or datetime.now(UTC)
    judged = [
        _guarded(pod, partial(judge_pod, pod, moment)) or Judged(Sighting(pod), UNSEEN)
        for pod in listing.pods
    ]
    rows = [each.seen.row(moment, each.verdict.note) for each in judged]
    show_pods(markdown_table(rows, listing.failed))
    for each in judged:
        _guarded(each.seen.pod, partial(_act, each, plain_table(rows)))
        _guarded(each.seen.pod, partial(_explain, each.seen, moment))
    return judged


def judge_pod(pod: Pod, now: datetime) -> Judged:
    """Look at one pod, note its idleness and decide what to do."""
    seen = look_at(pod, now)
    known = seen.known
    if known is None:
        return Judged(
            seen, judge(Standing(known=False, foreign=seen.foreign), None, None, 0.0, now)
        )
    settings = known.settings
    idle = note_idleness(pod.run, known.facts, pod.id, seen.what, now.timestamp())
    verdict = judge(
        _standing(seen),
        earliest(
            first_deadline(settings, known.began, pod.created),
            budget_deadline(settings, known.facts, now),
        ),
        due(idle, settings.idle_minutes, now.timestamp()),
        settings.idle_minutes,
        now,
    )
    return Judged(seen, verdict, idle.minutes(now.timestamp()) if idle else 0.0)


def own_pods(listing: Listing) -> list[Pod]:
    """The pods of the listing that are this installation's, whatever is known of them otherwise."""
    return [pod for pod in listing.pods if not look_whose(pod).foreign]


def _standing(seen: Sighting) -> Standing:
    known = seen.known
    assert known is not None, "only pods of known runs have a standing"
    training = any(
        child.name.startswith("train-") and child.state and child.state.is_running()
        for child in known.children
    )
    return Standing(
        ended=known.ended,
        decided=known.decided,
        kept=known.facts.get("keep_pod") == "yes" and known.facts.get("outcome") != "cancelled",
        left_to_guard=known.facts.get("left_to_guard") == "yes",
        training=training,
    )


def _act(judged: Judged, table: str) -> None:
    pod, known = judged.seen.pod, judged.seen.known
    match judged.verdict:
        case Leave():
            return
        case Tell():
            assert known is not None, "only pods of known runs are idle"
            tell_idle(pod.run, pod.id, known.settings, judged.idle, table)
        case EndRun(outcome=outcome, note=why):
            decide(pod.run, outcome, why)
        case EndPod(note=why):
            log().warning("The pod %s on %s is given back: %s", pod.id, pod.cloud, why)
            _give_back(pod, run_is_known=known is not None)
        case other:
            assert_never(other)


def _explain(seen: Sighting, now: datetime) -> None:
    """Tell people of what they would take for a hang."""
    since, known = seen.forwarding_since, seen.known
    if since is None or known is None or known.over:
        return
    minutes = (now.timestamp() - since) / 60
    if minutes >= known.settings.idle_minutes / 2:
        tell_forwarding(seen.pod.run, seen.pod.id, known.settings, minutes, seen.at_step)


def _give_back(pod: Pod, *, run_is_known: bool) -> None:
    """This pod first; then whatever else is left of its run, on any cloud, and its report."""
    if not run_is_known:
        cloud_of(pod).terminate(pod)
        return
    stop_children(pod.run)
    end_pod(pod)
    clear_away(pod.run)
    complete_report(pod.run)


def _guarded(pod: Pod, call: Callable[[], T]) -> T | None:
    try:
        return call()
    except RunnerError as error:
        log().error("The pod %s on %s: %s", pod.id, pod.cloud, error)
    except Exception:  # a bug with one pod must not keep the others
        log().exception("The pod %s on %s can't be dealt with", pod.id, pod.cloud)
    return None
