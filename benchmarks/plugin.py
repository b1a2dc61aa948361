"""What our plugin adds to a training step: one real training, the plugin on and off in turn.

The tiny model is the worst case: its steps take 70 ms, those of a real model seconds.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from pod import trainer
from pod.rundir import RunDir, write_json
from runner.home import REPOSITORY, axolotl_environment

STEPS = 400
TARGET = 1.01
WARM_UP = 20


def run(report: Callable[[str], None]) -> dict[str, dict[str, Any]]:
    """The ratio of the median step times, on over off."""
    with tempfile.TemporaryDirectory() as folder:
        steps = _train(RunDir(Path(folder)))
    kept = [step for step in steps if step["step"] > WARM_UP]
    on = [step["seconds"] for step in kept if step["on"]]
    off = [step["seconds"] for step in kept if not step["on"]]
    report(
        f"median step: {1e3 * statistics.median(on):.2f} ms with the plugin, "
        f"{1e3 * statistics.median(off):.2f} ms without"
    )
    ratio = statistics.median(on) / statistics.median(off)
    return {
        "step_time_ratio": {"value": round(ratio, 4), "unit": "×", "target": TARGET, "n": len(kept)}
    }


def _train(folder: RunDir) -> list[dict[str, Any]]:
    settings = yaml.safe_load((REPOSITORY / "configs" / "examples" / "tiny.yml").read_text())
    settings |= {
        "max_steps": STEPS,
        "num_epochs": 20,
        "save_steps": 10 * STEPS,
        "eval_steps": 10 * STEPS,
        "output_dir": str(folder.out),
        "dataset_prepared_path": str(folder.path / "prepared"),
        "plugins": ["benchmarks.switched_plugin.SwitchedPlugin"],
    }
    folder.axolotl_file.write_text(yaml.safe_dump(settings))
    write_json(
        folder.attempt_file, {"attempt": 1, "from_checkpoint": None, "rung": None, "spike": {}}
    )
    environment = trainer.trainer_environment(
        {
            **os.environ,
            "PYTHONPATH": str(REPOSITORY),
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
        },
        axolotl_env=axolotl_environment(),
        run_dir=folder,
        gpu=False,
    )
    axolotl = axolotl_environment() / "bin" / "axolotl"
    done = subprocess.run(
        trainer.command(axolotl, folder),
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"axolotl failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return [json.loads(line) for line in (folder.path / "steps.jsonl").read_text().splitlines()]
