"""Whole runs on interruptible machines, each of which loses its machine once at a random moment.

Real Prefect, gateway, start script, axolotl, checkpoint store (the hub's emulator) and market
(Vast's emulator), two runs at a time. At a moment drawn from the run's number the machine is
outbid, or ended by its owner. Wanted: every run completes; each step was trained on the very rows
of a run that lost nothing; no machine is left; the bill is the cloud's. The sweep can be stopped
and goes on. State: benchmarks/state/preemption/ (delete it to measure anew).
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.resumable import STATE, Result, Sleep, Sweep, limit
from tests.e2e.conftest import TINY
from tests.e2e.rented import Rented, emulated, rented_task, renting, volume_of

KILLS = 30
FOLDER = STATE / "preemption"
CLEAN = "clean"
SAVE_STEPS = 50
WAYS = ("outbid", "kill_pod")
# Seconds after the machine was rented: while it boots, loads the model, trains (about 18 s).
EARLIEST, LATEST = 2.0, 38.0
WITHIN = 400.0

Metrics = dict[str, dict[str, Any]]
Rows = dict[int, list[str]]


def run(report: Callable[[str], None]) -> Metrics:
    """Go on with the runs, report what was lost, and return {metric: {value, unit, target, n}}."""
    sweep = Sweep(FOLDER)
    names = [CLEAN, *(f"kill-{n:02}" for n in range(1, KILLS + 1))]
    if not all(name in sweep.done() for name in names):
        try:
            _work(sweep, names, report)
        except KeyboardInterrupt:
            report("stopped; `make bench PART=preemption` goes on with the rest")
    return metrics(sweep.done())


def metrics(results: Mapping[str, Result]) -> Metrics:
    """Over the runs that lost their machine; empty before there is a run that lost nothing."""
    clean = results.get(CLEAN)
    killed = [result for name, result in results.items() if name != CLEAN]
    if clean is None or not killed:
        return {}

    def share(true: Callable[[Result], bool]) -> float:
        return 100.0 * sum(map(true, killed)) / len(killed)

    def metric(value: float, unit: str, target: float | None) -> dict[str, Any]:
        return {"value": round(value, 4), "unit": unit, "target": target, "n": len(killed)}

    lost = [result["steps_lost"] for result in killed if result["attempts"] > 1]
    return {
        "completed": metric(share(lambda each: each["state"] == "completed"), "%", 100.0),
        "same_rows": metric(share(lambda each: each["rows"] == clean["rows"]), "%", 100.0),
        "machines_left": metric(sum(each["left"] for each in killed), "machines", 0),
        "bill_off": metric(max(each["bill_off"] for each in killed), "USD", 0.01),
        "steps_lost": metric(median(lost) if lost else 0, "steps", SAVE_STEPS),
        "moved_in_training": metric(share(lambda each: each["attempts"] > 1), "%", None),
    }


def _work(sweep: Sweep, names: list[str], report: Callable[[str], None]) -> None:
    with (
        emulated("hub") as hub,
        renting("vast", HF_TOKEN="hf_write") as rented,
        TemporaryDirectory() as folder,
    ):
        rented.set(gaps=False, keep_folders=True)

        def do(name: str, sleep: Sleep) -> Result:
            place = Path(folder) / name
            place.mkdir(exist_ok=True)
            return _one(rented, hub, name, place, sleep)

        sweep.work(names, do, report, limit_s=limit())


def _one(rented: Rented, hub: str, name: str, folder: Path, sleep: Sleep) -> Result:
    file = rented_task(
        folder,
        TINY,
        long=True,
        save_steps=SAVE_STEPS,
        plugins=["tests.faults.record_rows.RecordRows"],
        cloud="vast",
        gpu="RTX 4090",
        spot=True,
        checkpoint_store="hf://me/preemption",
        env={"HF_HUB_OFFLINE": "1", "HF_ENDPOINT": hub},
    )
    run_id = rented.side.start(file)
    way, moment = None, None
    if name != CLEAN:
        chance = random.Random(name)
        way, moment = chance.choice(WAYS), chance.uniform(EARLIEST, LATEST)
        _kill(rented, run_id, way, moment, sleep)
    deadline = time.monotonic() + WITHIN
    while not rented.side.has_ended(run_id):
        if time.monotonic() > deadline:
            return _result(rented, run_id, way, moment, {"state": "too long", "attempts": []})
        sleep(0.5)
    report = json.loads((rented.side.home.runs / run_id / "report.json").read_text())
    return _result(rented, run_id, way, moment, report)


def _kill(rented: Rented, run_id: str, way: str, moment: float, sleep: Sleep) -> None:
    while not rented.pods_of(run_id):
        sleep(0.2)
    sleep(moment)
    living = [pod for pod in rented.state["pods"] if pod["label"] == f"axr-{run_id}"]
    if living:
        rented.set(**{way: living[0]["id"]})


def _result(
    rented: Rented, run_id: str, way: str | None, moment: float | None, report: Mapping[str, Any]
) -> Result:
    state = rented.state
    pods = rented.pods_of(run_id)
    bill = sum(state["bill"].get(str(pod["id"]), 0.0) for pod in pods)
    trained = [rows_of(volume_of(pod) / "axr" / run_id) for pod in pods]
    attempts = report["attempts"]
    last = max((max(rows) for rows in trained if rows), default=0)
    kept = attempts[-1]["from_checkpoint"] or 0 if len(attempts) > 1 else 0
    before = max((max(rows) for rows in trained if rows and max(rows) < last), default=kept)
    return {
        "state": report["state"],
        "reason": report.get("reason"),
        "way": way,
        "moment": round(moment, 1) if moment is not None else None,
        "attempts": len(attempts),
        "steps_lost": max(0, before - kept),
        "left": sum(pod["label"] == f"axr-{run_id}" for pod in state["pods"]),
        "bill_off": round(abs(report.get("cost_usd", 0.0) - bill), 4),
        "rows": _joined(trained),
    }


def rows_of(folder: Path) -> Rows:
    """The rows of each step that was trained there, as the newest attempt saw them."""
    path = folder / "rows.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    found: dict[int, tuple[int, list[str]]] = {}
    for line in (json.loads(line) for line in lines if line.endswith("}")):
        found[line["step"]] = (line["attempt"], line["rows"])
    return {step: rows for step, (_, rows) in found.items()}


def _joined(trained: list[Rows]) -> dict[str, list[str]]:
    """Over all machines; a step that two have trained must have had the same rows on both."""
    joined: dict[str, list[str]] = {}
    for rows in trained:
        for step, own in rows.items():
            known = joined.setdefault(str(step), own)
            if known != own:
                joined[str(step)] = ["different rows on two machines"]
    return dict(sorted(joined.items(), key=lambda pair: int(pair[0])))
