"""What a whole run of ours takes over plain `axolotl train`, for a short and for a long training.

Prefect is up, as it is for people who use it every day. Each pair is measured one after the other,
the order turns with each pair; BENCH_PAIRS says how many (default 2).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.whole_runs import ByHand, control_side, task_file
from tests.e2e.conftest import Side

# Steps of the tiny model, and what more the task files say. About 20 s and 120 s by hand.
LENGTHS: dict[str, dict[str, Any]] = {
    "20s": {"max_steps": 40},
    "120s": {"max_steps": 1400, "num_epochs": 50, "save_steps": 200, "eval_steps": 700},
}
TARGETS = {"20s": None, "120s": 1.35}


def run(report: Callable[[str], None]) -> dict[str, dict[str, Any]]:
    """The ratio of the mean times for each length; {metric: {value, unit, target, n}}."""
    pairs = int(os.environ.get("BENCH_PAIRS") or 2)
    metrics: dict[str, dict[str, Any]] = {}
    with control_side() as side, TemporaryDirectory() as folder:
        for name, changes in LENGTHS.items():
            plain, ours = [], []
            for n in range(pairs):
                place = Path(folder) / f"{name}-{n}"
                by_hand = ByHand(task_file(place / "plain", **changes))
                file = task_file(place / "ours", **changes)
                for turn in ("plain", "ours") if n % 2 == 0 else ("ours", "plain"):
                    if turn == "plain":
                        plain.append(by_hand.train())
                    else:
                        ours.append(_ours(side, file))
                report(f"{name}: {ours[-1]:.1f} s with us, {plain[-1]:.1f} s without")
            metrics[f"overhead_{name}"] = {
                "value": round(mean(ours) / mean(plain), 3),
                "unit": "×",
                "target": TARGETS[name],
                "n": pairs,
            }
            metrics[f"plain_{name}"] = {
                "value": round(mean(plain), 1), "unit": "s", "target": None, "n": pairs,
            }  # fmt: skip
    return metrics


def _ours(side: Side, file: Path) -> float:
    """Seconds from the command to its last line: the pod is gone, the report is written."""
    began = time.monotonic()
    done = side.cli("run", str(file), "--watch", timeout=1800)
    if done.returncode:
        raise SystemExit(f"the run failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return time.monotonic() - began
