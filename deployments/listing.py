"""`axolotl-runner pods` and `logs`."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from blocks.cloud import Pod
from blocks.clouds import cloud_of
from runner.errors import PodLost, TryAgain
from runner.home import home
from runner.report import pod_cost


def print_pods(*, as_json: bool) -> int:
    """List all pods of ours; exit code 0."""
    from tasks.sweeping import list_pods

    rows = [_row(pod) for pod in list_pods()]
    if as_json:
        print(json.dumps(rows, indent=2))
    elif not rows:
        print("no pods")
    for row in [] if as_json else rows:
        print(
            f"{row['id']}  {row['cloud']}  {row['phase']}  run {row['run']}  ${row['cost_usd']:.4f}"
        )
    return 0


def print_logs(wanted: str) -> int:
    """Print what the flows of a run logged, and its trainer's log when it is on this machine."""
    from uuid import UUID

    from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId
    from prefect.client.schemas.sorting import LogSort

    from deployments.watching import find_run
    from tasks.api import api
    from tasks.standing import children

    run_id = find_run(wanted)
    ids = [UUID(run_id), *(child.id for child in children(run_id))]
    prefect = api()
    offset = 0
    while page := prefect.read_logs(
        LogFilter(flow_run_id=LogFilterFlowRunId(any_=ids)),
        sort=LogSort.TIMESTAMP_ASC,
        offset=offset,
        limit=200,
    ):
        for entry in page:
            print(f"{entry.timestamp:%H:%M:%S} {entry.message}")
        offset += len(page)
    trainer = home().run(run_id) / "trainer.log"
    if trainer.exists():
        print(trainer.read_text(errors="replace"))
    return 0


def _row(pod: Pod) -> dict[str, object]:
    try:
        phase = str(cloud_of(pod).status(pod).phase)
    except (PodLost, TryAgain):
        phase = "unknown"
    now = datetime.now(UTC)
    return {
        "id": pod.id,
        "name": pod.name,
        "cloud": pod.cloud,
        "run": pod.run,
        "phase": phase,
        "created": pod.created.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "price_per_hour": pod.price_per_hour,
        "cost_usd": pod_cost(pod.created, None, pod.price_per_hour, now),
    }
