"""How long a user waits for nothing: from the push to the pod, from the last step to no pod.

Real git, hook, gateway, dispatch and axolotl, on local pods, one push after the other; the time of
an upload would not count, and there is none.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from benchmarks.whole_runs import control_side
from blocks.local.cloud import LocalCloud
from runner.home import REPOSITORY
from tests.e2e.conftest import TINY
from tests.e2e.pushes import connected

TIMES = 4
EVENT_TO_CREATE, END_TO_GONE = 8.0, 10.0
LOOK_EVERY = 0.05


def run(report: Callable[[str], None]) -> dict[str, dict[str, Any]]:
    """The medians in seconds; {metric: {value, unit, target, n}}."""
    to_pod, to_gone = [], []
    with control_side() as side, TemporaryDirectory() as folder:
        pushes = connected(side, Path(folder))
        shutil.copytree(REPOSITORY / "configs/examples/tiny", pushes.work.folder / "tiny")
        cloud = LocalCloud(side.home)
        for n in range(TIMES):
            pushed, name = time.time(), f"configs/{n}.yml"
            pushes.work.write(name, _task(n))
            pushes.push(f"Push {n}")
            side.wait("the run", lambda name=name: name in pushes.runs())  # type: ignore[misc]
            run_id = pushes.runs()[name][0]["id"]
            with _gone(cloud, run_id) as gone:
                done = side.report(run_id, within=600)
            if done["state"] != "completed":
                raise SystemExit(done["reason"])
            created = datetime.fromisoformat(done["pods"][0]["created"]).timestamp()
            to_pod.append(created - pushed)
            to_gone.append(gone[0] - side.events(run_id, "end")[0]["t"])
            report(f"push → pod {to_pod[-1]:.1f} s, last word → no pod {to_gone[-1]:.1f} s")

    def metric(of: list[float], target: float) -> dict[str, Any]:
        return {"value": round(median(of), 2), "unit": "s", "target": target, "n": len(of)}

    return {
        "event_to_create": metric(to_pod, EVENT_TO_CREATE),
        "end_to_gone": metric(to_gone, END_TO_GONE),
    }


def _task(seed: int) -> str:
    settings = yaml.safe_load((REPOSITORY / TINY).read_text())
    settings["base_model"] = "tiny/model"
    settings["datasets"][0]["path"] = "tiny/data.jsonl"
    return yaml.safe_dump({**settings, "max_steps": 10, "seed": seed}, sort_keys=False)


@contextmanager
def _gone(cloud: LocalCloud, run_id: str) -> Iterator[list[float]]:
    """When a listing first lacked the run's pod, once it had been there."""
    found: list[float] = []

    def watch() -> None:
        while cloud.find(run_id) is None:
            time.sleep(LOOK_EVERY)
        while cloud.find(run_id) is not None:
            time.sleep(LOOK_EVERY)
        found.append(time.time())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    yield found
    thread.join(30)
