"""One training of the recovery bench: with us or with axolotl alone, with a fault or without.

With us, the loop below stands for the flows (no Prefect server): it calls what their tasks call, so
the trainer's process, the plugin, the verdict, the ledger and the ladder are the product's own.
Alone, axolotl has its watchdog (loss_watchdog_threshold, patience 3).
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import yaml

from benchmarks.resumable import STATE, Result, Sleep, Stopped
from pod import events, trainer
from pod.rundir import RunDir, read_json
from runner.adapt import adapt
from runner.attempts import AttemptFacts
from runner.batch import batch_of
from runner.home import REPOSITORY
from runner.ladder import FIRST, NextAttempt, Stop, next_attempt
from runner.taskfile import TaskFile, parse_task_file
from tasks.starting import Plan
from tasks.trainer import follow_trainer, start_or_attach

TASK = REPOSITORY / "configs" / "examples" / "tiny.yml"
FINAL_EVAL = "benchmarks.final_eval.FinalEval"
FAULTS: Mapping[str, str | None] = {
    "none": None,
    "weights": "tests.faults.weights_once.WeightsOnce",
    "garbage": "tests.faults.garbage_rows.GarbageRows",
    "lr": "tests.faults.lr_burst.LrBurst",
    "nan": "tests.faults.nan_once.NanOnce",
}
# The tiny example with half its batch: 90 steps in one epoch, in which the loss has time to level
# out. Of 40 steps, five that are skipped would be an eighth of the training.
LONGER = {"micro_batch_size": 4, "max_steps": 90, "save_steps": 10, "eval_steps": 45}
FIRST_FAULT, LAST_FAULT = 20, 75
# The first loss is 6.2 to 6.3 (the vocabulary has 512 tokens) and stands above the 5.0 of axolotl's
# examples; this is the lowest round threshold that stops no healthy run.
WATCHDOG = {"loss_watchdog_threshold": 7.0, "loss_watchdog_patience": 3}
LIMIT_S = 900.0  # a busy machine takes its time: 25 s alone
PREPARED = STATE / "recovery" / "prepared"  # shared, since all train on the same rows
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "AXR_REPOSITORY": str(REPOSITORY),
    "AXOLOTL_DO_NOT_TRACK": "1",
    "ACCELERATE_USE_CPU": "1",
    "CUDA_VISIBLE_DEVICES": "",
}


class TooLong(Exception):
    """The training did not end within LIMIT_S seconds."""


@dataclass(frozen=True)
class Item:
    """One training: `who` is ours or plain, `fault` one of FAULTS."""

    who: str
    fault: str
    seed: int

    @property
    def name(self) -> str:
        """The name that its result and its folder have."""
        return f"{self.who}-{self.fault}-{self.seed}"

    @property
    def fault_step(self) -> int:
        """The step at which the fault strikes; it depends on the seed alone."""
        return FIRST_FAULT + self.seed * 23 % (LAST_FAULT - FIRST_FAULT + 1)


def item_named(name: str) -> Item:
    """The item of a name."""
    who, fault, seed = name.split("-")
    return Item(who, fault, int(seed))


def train(item: Item, folder: Path, axolotl: Path, sleep: Sleep) -> Result:
    """Train from the beginning in `folder` and say how it ended.

    `axolotl` is the trainer's environment, whose bin/axolotl is started. No process is left when
    this returns or raises. A training that ended well leaves its events only.
    """
    run_dir = RunDir(folder)
    _end(run_dir)  # left by a bench that was killed
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    began = time.monotonic()

    def limited_sleep(seconds: float) -> None:
        if time.monotonic() - began > LIMIT_S:
            raise TooLong(f"no end within {LIMIT_S:.0f} s")
        sleep(seconds)

    try:
        one = _ours if item.who == "ours" else _plain
        result = one(item, run_dir, axolotl, limited_sleep)
    except Stopped:
        raise
    except Exception as error:  # a bug of ours is a run not recovered, and the sweep goes on
        result = {"outcome": "error", "reason": f"{type(error).__name__}: {error}"}
    finally:
        _end(run_dir)
    result |= _model(folder) | {"seconds": round(time.monotonic() - began, 1)}
    if FAULTS[item.fault]:
        result |= {"fault_step": item.fault_step, "struck": _struck(folder)}
    if result["outcome"] == "completed":
        for place in (run_dir.out, run_dir.kept, run_dir.quarantine):
            shutil.rmtree(place, ignore_errors=True)
    return result


def task_text(item: Item) -> str:
    """The task file of an item, with us: the tiny example, longer, with its seed and its fault."""
    keys = yaml.safe_load(TASK.read_text())
    fault = FAULTS[item.fault]
    if fault:
        keys["fault_step"] = item.fault_step
    keys["plugins"] = [*([fault] if fault else []), FINAL_EVAL]
    keys["dataset_prepared_path"] = str(PREPARED)
    return yaml.safe_dump({**keys, **LONGER, "seed": item.seed}, sort_keys=False)


def _ours(item: Item, run_dir: RunDir, axolotl: Path, sleep: Sleep) -> Result:
    text = task_text(item)
    task = parse_task_file(text, f"{item.name}.yml")
    root = str(REPOSITORY)
    adapted = adapt(task, run_dir=str(run_dir.path), source_dir=root, root=root)
    run_dir.task_file.write_text(text)
    run_dir.axolotl_file.write_text(adapted.text)
    attempts, reason = _climb(run_dir, task, axolotl, sleep)
    last = attempts[-1]
    return {
        "outcome": last.outcome,
        "reason": reason,
        "last_step": last.last_step,
        "planned_steps": last.planned_steps,
        "attempts": len(attempts),
        "steps_lost": steps_lost(attempts),
        "alarms": [[a.outcome, a.onset_step, a.alarm_step] for a in attempts if a.alarm_step],
        "rungs": [a.rung for a in attempts[1:]],
        **named(run_dir),
    }


def _climb(
    run_dir: RunDir, task: TaskFile, axolotl: Path, sleep: Sleep
) -> tuple[list[AttemptFacts], str | None]:
    """All attempts, as the flow `finetune` makes them; and why there is no further one."""
    attempts = [_attempt(run_dir, FIRST, axolotl, sleep)]
    while attempts[-1].outcome != "completed":
        plan = next_attempt(attempts, task.settings.resume, batch=batch_of(task.axolotl))
        if isinstance(plan, Stop):
            return attempts, plan.reason
        attempts.append(_attempt(run_dir, plan, axolotl, sleep))
    return attempts, None


def _attempt(run_dir: RunDir, wanted: NextAttempt, axolotl: Path, sleep: Sleep) -> AttemptFacts:
    plan = Plan.of(wanted)
    settings = environment() | {"AXR_AXOLOTL_ENV": str(axolotl)}
    process = start_or_attach.fn(run_dir, plan, settings)
    return follow_trainer.fn(run_dir, plan, process, lambda _: None, sleep=sleep)


def _plain(item: Item, run_dir: RunDir, axolotl: Path, sleep: Sleep) -> Result:
    keys = yaml.safe_load(task_text(item))
    del keys["runner"]
    keys |= WATCHDOG
    keys["output_dir"] = str(run_dir.out)
    run_dir.axolotl_file.write_text(yaml.safe_dump(keys, sort_keys=False))
    process = trainer.start(
        run_dir,
        trainer.command(axolotl / "bin" / "axolotl", run_dir),
        trainer.trainer_environment(environment(), axolotl_env=axolotl, run_dir=run_dir, gpu=False),
        attempt=1,
        cwd=REPOSITORY,
    )
    while process.alive():
        sleep(0.2)
    code = process.exit_code()
    return {
        "outcome": "completed" if code == 0 else "crash",
        "planned_steps": keys["max_steps"],
        "attempts": 1,
    }


def environment() -> dict[str, str]:
    """What every trainer's environment has besides its own settings."""
    return {**os.environ, **ENVIRONMENT}


def steps_lost(attempts: list[AttemptFacts]) -> int:
    """How many trained steps were thrown away: from the checkpoint gone back to, to each end."""
    return sum(
        max(0, (failed.last_step or 0) - (coming.from_checkpoint or 0))
        for failed, coming in pairwise(attempts)
    )


def named(run_dir: RunDir) -> Result:
    """Whether a post-mortem names a planted row of garbage, and whether one comes first."""
    planted = read_json(run_dir.path / "planted.json")
    if planted is None:
        return {}
    found = [e["rows"] for e in events.read(run_dir.events)[0] if e["kind"] == "postmortem"]
    rows = set(planted["rows"])
    return {
        "met": planted["met"],
        "garbage_named": any(row["index"] in rows for each in found for row in each),
        "garbage_first": bool(found) and all(each and each[0]["index"] in rows for each in found),
    }


def _model(folder: Path) -> Result:
    """The final model's step and loss on the rows kept for evaluation; empty without a model."""
    final = read_json(folder / "final.json")
    if final is None:
        return {"eval_loss": None}
    return {"last_step": final["step"], "eval_loss": final["eval_loss"]}


def _struck(folder: Path) -> bool:
    """Whether the fault left its trace; a run that it passed by proves nothing."""
    planted = read_json(folder / "planted.json")
    return bool(planted and planted["met"]) or any(folder.glob("fault-*"))


def _end(run_dir: RunDir) -> None:
    left = trainer.last(run_dir)
    if left is not None:
        left.stop(grace_s=0)
