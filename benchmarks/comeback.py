"""From a loss spike to the first step of the next attempt, over stopping and restarting by hand.

Three ways, for the tiny model and for one whose weights take long to load: sent back in the same
process, replaced by a new process (`resume.warm_seconds: 0`), and `axolotl train
--resume-from-checkpoint` typed in no time. The same checkpoint, the same steps. With us the clock
starts at the alarm, and the flows are real; by hand it starts at SIGTERM. BENCH_LARGE=0 leaves the
large model out; it needs 5 GB of disk and 12 GB of memory.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.resumable import STATE
from benchmarks.whole_runs import WATCH, ByHand, control_side, task_file
from runner.home import REPOSITORY, axolotl_environment
from tests.e2e.conftest import Side

SPIKE, CHECKPOINT, LAST = 14, 10, 16
TINY: dict[str, Any] = {"max_steps": LAST, "save_steps": 5, "eval_steps": 100, "warmup_steps": 2}
# A Llama of 1.1 billion random numbers: 4.5 GB. LoRA keeps its checkpoints small.
LARGE: dict[str, Any] = {
    **TINY,
    "base_model": str(STATE / "large" / "model"),
    "adapter": "lora",
    "lora_r": 4,
    "lora_alpha": 8,
    "lora_target_modules": ["q_proj", "v_proj"],
    "micro_batch_size": 1,
    "sequence_len": 64,
    "val_set_size": 0,
    "eval_steps": None,
    "learning_rate": 0.0001,
}
FAULT = "tests.faults.nan_once.NanOnce"
TARGETS = {"tiny": 0.8, "large": 0.4}
TIMES = {"tiny": 3, "large": 1}
WITHIN = 1500.0

Metrics = dict[str, dict[str, Any]]


def run(report: Callable[[str], None]) -> Metrics:
    """Ratios of the medians; {metric: {value, unit, target, n}}."""
    models = {"tiny": TINY}
    if os.environ.get("BENCH_LARGE") != "0":
        _make_large(report)
        models["large"] = LARGE
    metrics: Metrics = {}
    with control_side() as side, TemporaryDirectory() as folder:
        for name, settings in models.items():
            metrics |= _compare(side, Path(folder), name, settings, report)
    shutil.rmtree(STATE / "large", ignore_errors=True)
    return metrics


def _compare(
    side: Side, folder: Path, name: str, settings: dict[str, Any], report: Callable[[str], None]
) -> Metrics:
    warm, cold, hand, loading = [], [], [], []
    for n in range(TIMES[name]):
        place = folder / f"{name}-{n}"
        file = task_file(place / "hand", plugins=[WATCH], **settings)
        by_hand, loads = ByHand(file).restart(SPIKE, CHECKPOINT)
        hand.append(by_hand)
        loading.append(loads)
        warm.append(_ours(side, place / "warm", settings, warm_seconds=300))
        cold.append(_ours(side, place / "cold", settings, warm_seconds=0))
        report(
            f"{name}: {warm[-1]:.1f} s in the same process, {cold[-1]:.1f} s in a new one, "
            f"{hand[-1]:.1f} s by hand"
        )

    def ratio(of: list[float], target: float | None) -> dict[str, Any]:
        value = round(median(of) / median(hand), 3)
        return {"value": value, "unit": "×", "target": target, "n": len(of)}

    def seconds(of: list[float]) -> dict[str, Any]:
        return {"value": round(median(of), 1), "unit": "s", "target": None, "n": len(of)}

    return {
        f"{name}_same_process": ratio(warm, TARGETS[name]),
        f"{name}_new_process": ratio(cold, None),
        f"{name}_same_process_s": seconds(warm),
        f"{name}_by_hand_s": seconds(hand),
        f"{name}_loading_s": seconds(loading),
    }


def _ours(side: Side, folder: Path, settings: dict[str, Any], *, warm_seconds: int) -> float:
    """Seconds from the alarm to the end of the next attempt's first step."""
    file = task_file(
        folder,
        **settings,
        plugins=[FAULT],
        fault_step=SPIKE - 1,
        runner={"cloud": "local", "env": {"HF_HUB_OFFLINE": "1"},
                "resume": {"warm_seconds": warm_seconds}},
    )  # fmt: skip
    run_id = side.start(str(file))
    report = side.report(run_id, within=WITHIN)
    if report["state"] != "completed" or len(report["attempts"]) != 2:
        raise SystemExit(f"not as planned: {report['state']}, {report['reason']}")
    alarm = side.events(run_id, "alarm")[0]
    first = next(each for each in side.events(run_id, "step") if each["attempt"] == 2)
    return float(first["t"] - alarm["t"])


def _make_large(report: Callable[[str], None]) -> None:
    """Write the large model, by the trainer's own Python."""
    report("making the large model")
    python = axolotl_environment() / "bin" / "python"
    subprocess.run(
        [python, REPOSITORY / "benchmarks" / "make_large.py", STATE / "large" / "model"],
        check=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
