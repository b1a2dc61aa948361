"""Tell people what happened; a notice that can't be delivered warns and changes nothing."""

from __future__ import annotations

import os
from typing import Any

from prefect import task
from prefect.settings import PREFECT_UI_URL

from blocks.notifier import load_notifier
from runner.errors import Outcome
from runner.notice import Kind, compose
from runner.settings import NotifySettings
from tasks.run import Order, Run
from tasks.spending import cost_so_far
from tasks.standing import recall, remember
from tasks.wandb_story import alert


@task
def tell(run: Run, order: Order, kind: Kind, reason: str, **facts: Any) -> None:
    """Send one notice, once for each (kind, attempt), if the task file wants this kind."""
    alert(run, kind, reason, facts.get("attempt", ""))
    deliver(run, order.settings.notify, kind, reason, facts=facts)


def deliver(
    run: Run,
    settings: NotifySettings,
    kind: Kind,
    reason: str,
    *,
    outcome: Outcome | None = None,
    facts: dict[str, Any] | None = None,
    log: str = "",
    mark: str | None = None,
) -> None:
    """As `tell`, for hooks and the end of a run. A revived parent does not tell twice: what was
    told is a label, `mark` where (kind, attempt) is not what makes a notice one of its own.
    """
    known = recall(run.id)
    mark = mark or f"told.{run.generation}.{kind}.{(facts or {}).get('attempt', '')}"
    if kind not in settings.on or mark in known:
        return
    notifier = load_notifier(settings.block, os.environ.get("AXR_NOTIFY_URLS"))
    notice = compose(
        kind,
        run=run.id,
        task=run.task_file,
        reason=reason,
        outcome=outcome,
        cost_usd=cost_so_far(known),
        link=ui_link(run.id),
        facts=facts,
        log=log,
    )
    notifier.deliver(notice)
    remember(run.id, {mark: "yes"})


def ui_link(run_id: str) -> str:
    """Where the run is in the Prefect UI; empty when no UI is known."""
    base = PREFECT_UI_URL.value()
    return f"{base}/runs/flow-run/{run_id}" if base else ""
