"""The crash sweep: whatever fails or dies, at whatever moment, no pod is left and no model lost.

Two ways. In process, the real control logic against emulated clouds and a real Prefect server, in
virtual time: at every call that a parent makes, to its cloud or to Prefect, the call fails in every
way or the parent is killed, and is revived (`crash_points`). And real processes of whole runs that
are killed at a random moment (`crash_kills`); these take about a minute each. The sweep can be
stopped and goes on. State: benchmarks/state/crashes/ (delete it to measure anew).

BENCH_CRASHES=points or kills does one of the two.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.crash_faults import AWAY, CANCELLED, NO_KEY
from benchmarks.crash_kills import sweep_kills
from benchmarks.crash_points import sweep_points
from benchmarks.resumable import STATE, Result, Sweep

FOLDER = STATE / "crashes"
ONE_OF = "BENCH_CRASHES"
# After these a run may end otherwise, with a reason: nobody can train without a key, or wait for
# ever. Who cancels a run gives its model up.
MAY_END = (AWAY, NO_KEY, CANCELLED)

Metrics = dict[str, dict[str, Any]]


def run(report: Callable[[str], None]) -> Metrics:
    """Go on with both sweeps and return {metric: {value, unit, target, n}}."""
    wanted = os.environ.get(ONE_OF)
    points, kills = Sweep(FOLDER / "points"), Sweep(FOLDER / "kills")
    try:
        if wanted in (None, "points"):
            sweep_points(points, report)
        if wanted in (None, "kills"):
            sweep_kills(kills, report)
    except KeyboardInterrupt:
        report("stopped; `make bench PART=crashes` goes on with the rest")
    for name, result in {**points.done(), **kills.done()}.items():
        if problem := problem_of(name, result):
            report(f"NOT AS IT SHOULD BE {name}: {problem}")
    return {**metrics(points.done()), **metrics(kills.done(), "kill_")}


def metrics(results: Mapping[str, Result], prefix: str = "") -> Metrics:
    """Over the points that were reached; empty before there is one."""
    reached = {name: each for name, each in results.items() if each["reached"]}
    if not reached:
        return {}
    strict = [each for name, each in reached.items() if not may_end(name)]

    def metric(value: float, unit: str, target: float | None, n: int = 0) -> dict[str, Any]:
        return {"value": value, "unit": unit, "target": target, "n": n or len(reached)}

    made = {
        "points": metric(len(reached), "points", None),
        "pods_left": metric(sum(each["left"] for each in reached.values()), "pods", 0),
        "two_pods": metric(sum(each["at_once"] > 1 for each in reached.values()), "runs", 0),
        "models_lost": metric(sum(is_lost(each) for each in reached.values()), "models", 0),
        "not_ended": metric(sum(not has_ended(each) for each in reached.values()), "runs", 0),
    }
    if strict:
        completed = 100.0 * sum(each["outcome"] == "completed" for each in strict) / len(strict)
        made["completed"] = metric(round(completed, 2), "%", 100.0, len(strict))
    return {f"{prefix}{name}": each for name, each in made.items()}


def problem_of(name: str, result: Result) -> str | None:
    """What is wrong with the end of this run, None when all is as it should be."""
    if result["left"]:
        return f"{result['left']} pods are left"
    if result["at_once"] > 1:
        return f"{result['at_once']} pods at once"
    if not has_ended(result):
        return f"it has not ended: {result['state']}"
    if is_lost(result):
        return f"its model is lost ({result['outcome']}: {result['reason']})"
    if result["outcome"] != "completed" and not may_end(name):
        return f"it ended as {result['outcome']}: {result['reason']}"
    if not result["reason"]:
        return "there is no report"
    return None


def is_lost(result: Result) -> bool:
    """Whether what was trained is nowhere, though nobody gave it up."""
    return not result["model_kept"] and result["outcome"] != "cancelled"


def has_ended(result: Result) -> bool:
    """Whether the run's state is final on the server."""
    return result["state"] in ("COMPLETED", "FAILED", "CANCELLED")


def may_end(name: str) -> bool:
    """Whether the fault of this point may end the run."""
    return any(f"-{mode}-" in name for mode in MAY_END)
