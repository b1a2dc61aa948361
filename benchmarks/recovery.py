"""How many trainings come through a fault, and how good their models are then.

Real trainings of the tiny model, two at a time: each fault with SEEDS seeds, with us and with
axolotl alone and its watchdog, against the same file and seed without a fault; and CLEAN trainings
without a fault, none of which may be rolled back. Each is a process of its own, forked from one
that has loaded axolotl, so the seconds lack that. The sweep can be stopped at any time and goes on
with what is missing. State: benchmarks/state/recovery/ (delete it to measure anew).

Recovered: the planned last step is reached, within the resumptions that the task file allows, and
the final model's loss on the rows kept for evaluation is at most HEALTHY times that of the run
without a fault. Steps lost: trained and thrown away; all of them when not recovered.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from prefect.logging import disable_run_logger

from benchmarks.preloaded import preloaded
from benchmarks.recovery_runs import FAULTS, Item, environment, item_named, train
from benchmarks.resumable import STATE, Result, Sleep, Sweep, limit
from runner.home import REPOSITORY
from runner.settings import ResumeSettings

SEEDS = 5
CLEAN = 20
HEALTHY = 1.10
MAX_ATTEMPTS = 1 + ResumeSettings().max_attempts
FOLDER = STATE / "recovery"
# What the results depend on; they are kept when it changes, and the report says so.
SOURCES = ("pod/*.py", "runner/*.py", "tasks/*.py", "tests/faults/*.py", "benchmarks/recov*.py")

Metrics = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Scored:
    """A training against the one without a fault; `ratio` is inf without a usable model."""

    item: Item
    recovered: bool
    ratio: float
    steps_lost: int
    attempts: int
    seconds: float
    rolled_back: bool
    named: bool | None


def run(report: Callable[[str], None]) -> Metrics:
    """Go on with the trainings, report a table and return {metric: {value, unit, target, n}}."""
    sweep = Sweep(FOLDER)
    code = fingerprint()

    try:
        _train(sweep, report, code)
    except KeyboardInterrupt:
        report("stopped; `make bench PART=recovery` goes on with the rest")
    results = sweep.done()
    old = [name for name, result in results.items() if result.get("code") != code]
    if old:
        report(f"{len(old)} of {len(results)} results come from other versions of the code")
    scored = score(results)
    for line in table(scored):
        report(line)
    for each in scored:
        if each.item.who == "ours" and not each.recovered:
            report(f"not recovered: {each.item.name}: {results[each.item.name].get('reason')}")
    return metrics(scored)


def _train(sweep: Sweep, report: Callable[[str], None], code: str) -> None:
    names = [item.name for item in items()]
    if all(name in sweep.done() for name in names):
        return
    with (
        disable_run_logger(),  # what the tasks say would stand between our lines
        TemporaryDirectory() as folder,
        preloaded(Path(folder), environment()) as axolotl,
    ):

        def do(name: str, sleep: Sleep) -> Result:
            result = train(item_named(name), sweep.folder / "runs" / name, axolotl, sleep)
            return {**result, "code": code}

        sweep.work(names, do, report, limit_s=limit())


def items() -> list[Item]:
    """All trainings, seed by seed, so that a sweep cut short has something of each kind."""
    wanted = []
    for seed in range(1, CLEAN + 1):
        wanted.append(Item("ours", "none", seed))
        if seed <= SEEDS:
            faults = [fault for fault, plugin in FAULTS.items() if plugin]
            wanted += [Item(who, fault, seed) for who in ("ours", "plain") for fault in faults]
    return wanted


def score(results: Mapping[str, Result]) -> list[Scored]:
    """Each training against the run without a fault of its seed; without that it is left out."""
    scored = []
    for name, result in results.items():
        item = item_named(name)
        clean = results.get(Item("ours", "none", item.seed).name)
        if clean is not None:
            scored.append(_score(item, result, clean))
    return scored


def _score(item: Item, result: Result, clean: Result) -> Scored:
    ratio = _loss(result) / _loss(clean) if math.isfinite(_loss(clean)) else math.inf
    last, planned = result.get("last_step"), result.get("planned_steps")
    attempts = int(result.get("attempts", 0))
    recovered = (
        result["outcome"] == "completed"
        and result.get("struck", True)
        and last is not None
        and last == planned
        and 1 <= attempts <= MAX_ATTEMPTS
        and ratio <= HEALTHY
    )
    return Scored(
        item=item,
        recovered=recovered,
        ratio=ratio,
        steps_lost=int(result.get("steps_lost", 0) if recovered else last or 0),
        attempts=attempts,
        seconds=float(result["seconds"]),
        rolled_back=bool(result.get("alarms")) or attempts > 1,
        named=result.get("garbage_named"),
    )


def table(scored: Iterable[Scored]) -> list[str]:
    """Lines: fault × who; medians, and the highest number of attempts."""
    groups: dict[tuple[str, str], list[Scored]] = {}
    for each in scored:
        groups.setdefault((each.item.fault, each.item.who), []).append(each)
    lines = [
        f"{'fault':10}{'who':8}{'recovered':>10}{'loss ratio':>12}{'steps lost':>12}"
        f"{'attempts':>10}{'seconds':>9}"
    ]
    for fault in FAULTS:
        for who in ("ours", "plain"):
            group = groups.get((fault, who))
            if group:
                lines.append(_row(fault, who, group))
    return lines


def metrics(scored: Iterable[Scored]) -> Metrics:
    """The numbers of the part; n is how many trainings each rests on."""
    every = list(scored)
    ours = [each for each in every if each.item.who == "ours" and each.item.fault != "none"]
    plain = [each for each in every if each.item.who == "plain"]
    clean = [each for each in every if each.item.fault == "none"]
    named = [each.named for each in ours if each.named is not None]
    found: Metrics = {
        "recovered": _share([each.recovered for each in ours], 95.0),
        "loss_ratio": _median([each.ratio for each in ours], "×", 1.05),
        "steps_lost": _median([each.steps_lost for each in ours], "steps", None),
        "clean_rollbacks": _metric(sum(each.rolled_back for each in clean), "runs", 0, len(clean)),
        "garbage_named": _share(named, 100.0),
        "plain_recovered": _share([each.recovered for each in plain], None),
        "plain_loss_ratio": _median([each.ratio for each in plain], "×", None),
    }
    for fault in (fault for fault, plugin in FAULTS.items() if plugin):
        group = [each.recovered for each in ours if each.item.fault == fault]
        found[f"{fault}_recovered"] = _share(group, 95.0)
    return found


def fingerprint() -> str:
    """A short hash of the sources that the results depend on."""
    digest = hashlib.sha256()
    for pattern in SOURCES:
        for path in sorted(REPOSITORY.glob(pattern)):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _loss(result: Result) -> float:
    loss = result.get("eval_loss")
    value = math.inf if loss is None else float(loss)
    return value if math.isfinite(value) else math.inf


def _row(fault: str, who: str, group: list[Scored]) -> str:
    recovered = f"{sum(each.recovered for each in group)}/{len(group)}"
    ratio = median(each.ratio for each in group)
    return (
        f"{fault:10}{who:8}{recovered:>10}{ratio:>12.3f}"
        f"{median(each.steps_lost for each in group):>12g}"
        f"{max(each.attempts for each in group):>10}"
        f"{median(each.seconds for each in group):>9.0f}"
    )


def _share(values: list[bool], target: float | None) -> dict[str, Any]:
    value = round(100 * sum(values) / len(values), 1) if values else None
    return _metric(value, "%", target, len(values))


def _median(values: list[float] | list[int], unit: str, target: float | None) -> dict[str, Any]:
    middle = median(values) if values else math.inf
    value = round(middle, 4) if math.isfinite(middle) else None  # JSON knows no infinity
    return _metric(value, unit, target, len(values))


def _metric(value: float | None, unit: str, target: float | None, n: int) -> dict[str, Any]:
    return {"value": value, "unit": unit, "target": target, "n": n}
