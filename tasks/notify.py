"""Tell people what happened: leave a notice in the outbox, which the keeper's postman empties.

A run neither waits for a notice nor fails for one.
"""

from __future__ import annotations

import os
from typing import Any

from prefect import task
from prefect.settings import PREFECT_UI_URL

from blocks.logs import log as logger
from runner.errors import Outcome
from runner.home import home
from runner.notice import Kind, Notice, compose
from runner.outbox import Letter, Outbox
from runner.settings import NotifySettings
from tasks.run import Order, Run
from tasks.spending import cost_so_far
from tasks.standing import recall, remember
from tasks.wandb_story import alert, wandb_link

# What a picture of the losses says something about.
WITH_CURVE = ("spike", "completed", "failed")


@task
def tell(run: Run, order: Order, kind: Kind, reason: str, **facts: Any) -> None:
    """Leave one notice, once for each (kind, attempt), if the task file wants this kind."""
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
    notice = compose(
        kind,
        run=run.id,
        task=run.task_file,
        reason=reason,
        outcome=outcome,
        cost_usd=cost_so_far(known),
        link=ui_link(run.id),
        links={name: url for name, url in links_of(run.id, known).items() if name != UI},
        facts=facts,
        log=log,
        quiet=settings.quiet,
    )
    curve = run.folder / "curve.png" if outcome else None
    leave(
        notice,
        mark=f"{run.id} {mark}",
        run=run.id,
        block=settings.block,
        picture=kind in WITH_CURVE and not settings.quiet,
        curve=str(curve) if curve else None,
    )
    remember(run.id, {mark: "yes"})


def leave(
    notice: Notice,
    *,
    mark: str,
    run: str | None = None,
    block: str | None = None,
    picture: bool = False,
    curve: str | None = None,
) -> None:
    """Put a notice into the outbox, once for each `mark` that waits; nothing where nobody wants
    any. A disk that takes none is a warning.
    """
    if not block and not os.environ.get("AXR_NOTIFY_URLS", "").strip():
        return
    letter = Letter(mark, notice, run=run, block=block, picture=picture, curve=curve)
    try:
        Outbox(home().outbox).leave(letter)
    except OSError as error:
        logger().warning("Notice %r could not be written down: %s", notice.kind, error)


UI = "Prefect UI"


def links_of(run_id: str, known: dict[str, str]) -> dict[str, str]:
    """Where a run is to be seen, name to address: the UI, and W&B, and the hub as far as its
    labels know it.
    """
    hub = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    repository = known.get("published")
    found = {
        UI: ui_link(run_id),
        "W&B": wandb_link(run_id),
        "model": f"{hub}/{repository}" if repository else "",
    }
    return {name: url for name, url in found.items() if url}


def ui_link(run_id: str) -> str:
    """Where the run is in the Prefect UI; empty when no UI is known."""
    base = PREFECT_UI_URL.value()
    return f"{base}/runs/flow-run/{run_id}" if base else ""
