"""What the parent tells the pod of a model's origin, from the run's labels and its children."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from runner.provenance import Provenance, UsedPod, past_attempts
from runner.secrets import scrub_plain
from tasks.run import Run
from tasks.spending import cost_of, cost_so_far
from tasks.standing import attempts, pods_of, recall
from tasks.wandb_story import wandb_link


def provenance(run: Run, now: datetime | None = None) -> dict[str, Any]:
    """As plain values, without secrets, for a parameter of the `publish` flow."""
    moment = now or datetime.now(UTC)
    known = recall(run.id)
    told = Provenance(
        run=run.id,
        task_file=run.task_file,
        repository=run.repository,
        commit=run.commit,
        attempts=past_attempts(attempts(run.id)),
        pods=tuple(_used(bill, moment) for bill in pods_of(known).values()),
        cost_usd=round(cost_so_far(known, moment), 4),
        links={"W&B": url} if (url := wandb_link(run.id)) else {},
    )
    return scrub_plain(told.plain())


def _used(bill: dict[str, Any], now: datetime) -> UsedPod:
    ended = datetime.fromisoformat(bill["terminated"]) if bill["terminated"] else now
    hours = max(0.0, (ended - datetime.fromisoformat(bill["created"])).total_seconds() / 3600)
    # Of Vast it is the number of a machine, which tells nobody anything.
    place = str(bill.get("place") or "")
    place = "" if place.isdigit() else place
    return UsedPod(str(bill["cloud"]), place, round(hours, 4), cost_of(bill, now))
