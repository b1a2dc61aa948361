"""A task file with a matrix: a run for each combination, and one table that compares them.

The run that was asked for trains nothing: it starts the others, under keys of its own so that it
starts none twice, and has ended. Each of them carries the tag `matrix:<that run>`, by which whoever
writes a report finds the others.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any
from uuid import UUID

from prefect import task
from prefect.client.schemas.actions import ArtifactCreate
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterTags
from prefect.client.schemas.objects import FlowRun

from blocks.logs import log
from runner.comparison import Row, comparison
from runner.errors import HandedOn
from runner.home import home
from runner.matrix import Variant, variant_name, variants
from tasks.api import api, write
from tasks.notify import ui_link
from tasks.retrying import patiently
from tasks.run import Order, Run, make_order

FINETUNE = "finetune/finetune"
TAG = "matrix:"


@task(**patiently(times=5, factor=2))
def spread(run: Run, order: Order) -> None:
    """Start a run for each combination of `runner.matrix` and end this one (HandedOn); nothing for
    a task file without one. ConfigError before any is started when one of them is wrong.
    """
    found = variants(order.task)
    if not found:
        return
    cloud = api().read_flow_run(UUID(run.id)).parameters.get("cloud")
    for each in found:
        make_order(variant_name(run.task_file, each), each.text, cloud)
    for each in found:
        log().info("%s → run %s", each.name, _start(run, each, cloud))
    show_comparison(run.id)
    raise HandedOn(f"{len(found)} runs of its matrix were started")


def show_comparison_of(run: Run) -> None:
    """Bring the table of the matrix up to date that this run belongs to, if it does."""
    tags = api().read_flow_run(UUID(run.id)).tags
    for parent in (tag.removeprefix(TAG) for tag in tags if tag.startswith(TAG)):
        show_comparison(parent)


def show_comparison(parent: str) -> str:
    """Write the table as artifact `matrix-<run>` and as comparison.md of that run; the table."""
    prefect = api()
    tagged = FlowRunFilter(tags=FlowRunFilterTags(all_=[f"{TAG}{parent}"]))
    runs = prefect.read_flow_runs(flow_run_filter=tagged, limit=200)
    title = str(prefect.read_flow_run(UUID(parent)).parameters["task_file"])
    page = comparison(title, [_row(run) for run in runs])
    folder = home().run(parent)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "comparison.md").write_text(page, encoding="utf-8")
    artifact = ArtifactCreate(
        key=f"matrix-{parent}", type="markdown", data=page, flow_run_id=UUID(parent)
    )
    write(lambda: prefect.create_artifact(artifact))
    return page


def _start(run: Run, variant: Variant, cloud: str | None) -> str:
    prefect = api()
    asked = prefect.read_flow_run(UUID(run.id))
    deployment = prefect.read_deployment_by_name(FINETUNE)
    parameters = {
        "task_file": variant_name(run.task_file, variant),
        "content": variant.text,
        "repository": run.repository,
        "commit": run.commit,
        "cloud": cloud,
    }
    values = json.dumps(dict(variant.values), default=str)
    create = partial(
        prefect.create_flow_run_from_deployment,
        deployment.id,
        parameters={name: value for name, value in parameters.items() if value is not None},
        idempotency_key=f"{run.id}:variant:{variant.number}",
        tags=[*asked.tags, f"{TAG}{run.id}"],
        labels={"axr.variant": variant.number, "axr.values": values},
    )
    return str(write(create).id)


def _row(run: FlowRun) -> Row:
    report = _report(str(run.id))
    state = run.state.name if run.state and run.state.name else "Scheduled"
    final, planned = report.get("final_step"), report.get("planned_steps")
    return Row(
        number=int(run.labels.get("axr.variant", 0)),
        values=json.loads(str(run.labels.get("axr.values", "{}"))),
        state=state,
        link=ui_link(str(run.id)),
        final_loss=report.get("final_loss"),
        steps=f"{final}/{planned}" if final is not None else "",
        seconds=report.get("seconds", {}).get("total"),
        cost_usd=report.get("cost_usd"),
    )


def _report(run_id: str) -> dict[str, Any]:
    """What its report says; nothing while there is none."""
    try:
        found = json.loads((home().run(run_id) / "report.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
