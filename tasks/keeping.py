"""A pod that is kept for debugging (one_shot: false): how one gets into it, and until when."""

from __future__ import annotations

from datetime import UTC
from typing import Any

from blocks.clouds import cloud, is_rented
from blocks.logs import log
from runner.errors import PodLost, RunnerError
from runner.notice import dollars
from tasks.run import Order, Run, open_order
from tasks.standing import pods_of, recall

KEPT = "is kept"  # what the reason of a run with a kept pod says


def kept_words(run: Run) -> str:
    """One clause for each pod that is kept, with a line to paste where its cloud has one; empty
    when there is none. Nobody's end fails for it: what can't be asked is said.
    """
    try:
        order: Order | None = open_order(run.id)
    except RunnerError:
        order = None
    bills = pods_of(recall(run.id)).items()
    living = [(pod, bill) for pod, bill in bills if not bill["terminated"]]
    words = "; ".join(_words(run, order, pod, bill) for pod, bill in living)
    if words:
        log().warning("%s", words)
    return words


def _words(run: Run, order: Order | None, pod: str, bill: dict[str, Any]) -> str:
    name = str(bill["cloud"])
    until = ""
    if order is not None:
        at = order.deadline(run).astimezone(UTC)
        idle = order.settings.idle_minutes
        until = f", until it was idle for {idle:g} minutes or {at:%Y-%m-%d %H:%M} UTC"
    price = f" for {dollars(float(bill['price_per_hour']))} per hour" if is_rented(name) else ""
    return f"the pod {pod} on {name} {KEPT}{price}{until}: {_way_in(run, name)}"


def _way_in(run: Run, name: str) -> str:
    if not is_rented(name):
        return f"cd {run.folder}"
    try:
        there = cloud(name)
        pod = there.find(run.id)
        if pod is None:
            raise PodLost("it is gone already")
        return there.status(pod).ssh or f"{name} shows no way in by ssh"
    except RunnerError as unknown:
        return f"how to reach it is not known now ({unknown})"
