"""`axolotl-runner pods` and `logs`."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from prefect.settings import PREFECT_API_URL

from runner.errors import ConfigError
from runner.home import home
from runner.pod_table import failures, plain_table
from tasks.sighting import Sighting, list_everywhere, look_at


def print_pods(*, as_json: bool) -> int:
    """List all pods of ours; exit code 0, or 1 when some cloud could not be asked.

    What a pod does is known where the control side is up; else only whether it boots.
    """
    now = datetime.now(UTC)
    listing = list_everywhere()
    ask_server = bool(PREFECT_API_URL.value())
    seen = [look_at(pod, now, ask_server=ask_server) for pod in listing.pods]
    if as_json:
        print(json.dumps([_row(each, now) for each in seen], indent=2))
    else:
        notes = ["of another installation" if each.foreign else "" for each in seen]
        rows = [each.row(now, note) for each, note in zip(seen, notes, strict=True)]
        print(plain_table(rows))
    for failure in failures(listing.failed):
        print(failure, file=sys.stderr)
    return 1 if listing.failed else 0


def print_logs(wanted: str) -> int:
    """Print what the flows of a run logged, then what its pods left: their logs, the trainer's too,
    whether the pods are still there or not.
    """
    from uuid import UUID

    from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId
    from prefect.client.schemas.sorting import LogSort

    from deployments.watching import find_run
    from runner.secrets import scrub
    from tasks.api import api
    from tasks.run import open_order
    from tasks.standing import children

    run_id = find_run(wanted)
    with suppress(ConfigError):
        open_order(run_id)  # the secrets that its task file holds are known from here on
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
            print(scrub(f"{entry.timestamp:%H:%M:%S} {entry.message}"))
        offset += len(page)
    for path in _kept(home().run(run_id)):
        print(f"\n== {path.relative_to(home().run(run_id))}")
        print(scrub(path.read_text(errors="replace")))
    return 0


def _kept(folder: Path) -> list[Path]:
    """The logs of a run in the order in which they were last written to."""
    found = [*folder.glob("*.log"), *folder.glob("logs/*/*.log")]
    return sorted(found, key=lambda path: path.stat().st_mtime)


def _row(seen: Sighting, now: datetime) -> dict[str, object]:
    """The contract of `pods --json`."""
    pod, shown = seen.pod, seen.row(now)
    return {
        "id": pod.id,
        "name": pod.name,
        "cloud": pod.cloud,
        "run": pod.run,
        "phase": shown.phase,
        "created": pod.created.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "price_per_hour": shown.price_per_hour,
        "cost_usd": shown.cost_usd,
    }
