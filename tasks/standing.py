"""Where a run stands, kept in Prefect alone: the labels of its flow run and the states of its
children.

A parent that is started again reads these before it calls anything, so nothing finished is
repeated.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterTags
from prefect.client.schemas.objects import FlowRun, State
from prefect.client.schemas.sorting import FlowRunSort

from blocks.cloud import Pod
from runner.attempts import AttemptFacts, from_message, to_message
from runner.errors import Outcome
from runner.secrets import scrub_plain
from tasks.api import api, write

PREFIX = "axr."


def remember(run: str, facts: Mapping[str, str | float]) -> None:
    """Write facts to the run's labels; an existing one of the same name is replaced."""
    prefect = api()
    labels = {PREFIX + key: scrub_plain(value) for key, value in facts.items()}
    write(lambda: prefect.update_flow_run_labels(UUID(run), labels))


def recall(run: str) -> dict[str, str]:
    """The facts of the run's labels; empty ones count as forgotten."""
    prefect = api()
    return facts_of(prefect.read_flow_run(UUID(run)))


def facts_of(flow_run: FlowRun) -> dict[str, str]:
    """As `recall`, of a flow run that was just read."""
    return {
        key.removeprefix(PREFIX): str(value)
        for key, value in flow_run.labels.items()
        if key.startswith(PREFIX) and value
    }


def cancelled_for(run: str) -> float:
    """Seconds since the server was told to cancel this run, 0.0 when it was not."""
    state = api().read_flow_run(UUID(run)).state
    if state is None or not state.is_cancelling():
        return 0.0
    return (datetime.now(UTC) - state.timestamp).total_seconds()


def tag(run: str) -> str:
    """The tag that every flow run of this run carries."""
    return f"run:{run}"


def children(run: str) -> list[FlowRun]:
    """The flow runs on pods of this run, oldest first."""
    prefect = api()
    found = prefect.read_flow_runs(
        flow_run_filter=FlowRunFilter(tags=FlowRunFilterTags(all_=[tag(run)])),
        sort=FlowRunSort.START_TIME_ASC,
    )
    return sorted(
        (child for child in found if child.idempotency_key),
        key=lambda child: child.created or _NEVER,
    )


_NEVER = datetime.max.astimezone()


def attempts(run: str) -> list[AttemptFacts]:
    """The finished attempts of this run, oldest first, from what its `train` children said."""
    return [
        _facts(child, child.state)
        for child in children(run)
        if child.name.startswith("train-") and child.state and child.state.is_final()
    ]


def leave_words(flow_run_id: str, words: Mapping[str, str]) -> None:
    """Write facts to the labels of a flow run on a pod, as `remember` does for the run."""
    labels: dict[str, str | int | float | bool] = {PREFIX + k: v for k, v in words.items()}
    write(lambda: api().update_flow_run_labels(UUID(flow_run_id), labels))


def leave_facts(flow_run_id: str, facts: AttemptFacts) -> None:
    """Leave the facts where a cancelled flow, whose final message is Prefect's own, can still say
    them.
    """
    leave_words(flow_run_id, {"facts": to_message(facts)})


def leave_pod(flow_run_id: str) -> None:
    """Say, for a parent that is started again, which pod this flow run is on."""
    leave_words(flow_run_id, {"pod": os.environ["AXR_POD"]})


def _facts(child: FlowRun, state: State[object]) -> AttemptFacts:
    """What the child said; one that died without a word is a crash, a cancelled one cancelled."""
    said = from_message(state.message) or from_message(str(child.labels.get(f"{PREFIX}facts", "")))
    if said:
        return said
    reason = (state.message or "no word from the pod").partition("\n")[0]
    outcome: Outcome = "cancelled" if state.is_cancelled() else "crash"
    return AttemptFacts(int((child.idempotency_key or "").rpartition(":")[2]), outcome, reason)


def remember_pod(
    pod: Pod, *, terminated: datetime | None = None, volume_per_hour: float | None = None
) -> None:
    """Write the pod to the run's labels: the bill outlives the pod.

    `volume_per_hour` is the price of its network volume, which the cloud bills apart; on the bill
    it is part of the price. Of two prices the higher one stays: a cloud says 0 of a pod that has
    stopped, and a pod that has become dearer must not cost more than its bill says.
    """
    known = pods_of(recall(pod.run)).get(pod.id, {})
    volume = known.get("volume_per_hour") or volume_per_hour or 0.0
    price = max(float(known.get("price_per_hour") or 0.0), round(pod.price_per_hour + volume, 6))
    idle = known.get("loading_per_hour")
    bill: dict[str, Any] = {
        "cloud": pod.cloud,
        "created": known.get("created") or pod.created.isoformat(),
        "terminated": terminated.isoformat() if terminated else None,
        "price_per_hour": price,
        "volume_per_hour": volume,
        "loading_per_hour": pod.loading_per_hour if idle is None else idle,
        "loading_until": known.get("loading_until"),
        "has_run": known.get("has_run", False),
        "place": known.get("place") or pod.place,
    }
    remember(pod.run, {f"pod.{pod.id}": json.dumps(bill)})


def remember_loading(pod: Pod, until: datetime | None, *, has_run: bool = False) -> None:
    """Write down that the pod was still seen loading at `until`, or that its container has begun to
    run: from then on nothing is changed. What was not seen counts as running, and costs more.
    """
    bill = pods_of(recall(pod.run)).get(pod.id)
    if bill is None or bill.get("has_run"):
        return
    if until is not None:
        bill["loading_until"] = until.isoformat()
    remember(pod.run, {f"pod.{pod.id}": json.dumps({**bill, "has_run": has_run})})


def pods_of(facts: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The pods in a run's facts: id → cloud, created, terminated, price_per_hour and, as a part of
    it, volume_per_hour; loading_until (None if never seen so) at loading_per_hour, has_run, and the
    place, which is its kind of machine.
    """
    return {
        key.removeprefix("pod."): json.loads(value)
        for key, value in facts.items()
        if key.startswith("pod.")
    }
