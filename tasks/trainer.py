"""One attempt on the pod: start the trainer or attach to it, follow its events, judge how it ended.

The trainer is a process of the pod, not of the flow: it goes on when the flow dies, and the next
flow attaches to it. So there is never a second trainer, and nothing here trusts an exit code.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from prefect import task

from blocks.logs import log
from pod import events, trainer
from pod.gpus import gpus_here
from pod.rundir import RunDir
from runner.attempts import AttemptFacts
from runner.errors import Outcome
from runner.sources import source_root
from runner.taskfile import TaskFile, parse_task_file
from tasks.facts import read_facts
from tasks.fetching import drop_half_prepared, hub_environment, write_adapted
from tasks.guarding import must_be_guarded
from tasks.hanging import HangWatch, remedies
from tasks.rewinding import rewind, waits, was_rewound
from tasks.starting import Plan, choose_shares, choose_start
from tasks.stopping import SAVE_WITHIN

__all__ = ["Plan", "follow_trainer", "start_or_attach"]

# After its last word (end, alarm, error) the trainer has this long to leave by itself: W&B may
# never let it go.
GRACE = 60.0
LOOK_EVERY = 0.2


@task
def start_or_attach(
    folder: RunDir, plan: Plan, environment: Mapping[str, str] = os.environ
) -> trainer.Trainer | None:
    """The trainer of this attempt: the living one, the one that waits after an alarm sent back, a
    new one, or None when it has already ended. ConfigError when the GPUs of this pod can't go on
    with what others have trained, TrainingFailed when nothing may start on this pod (any more).
    """
    living = trainer.find(folder)
    if living and living.attempt == plan.n:
        log().info("Attached to the trainer of attempt %s (pid %s)", plan.n, living.pid)
        return living
    if living and living.attempt > plan.n:
        return None  # it has gone on since
    if living:
        same = rewind(folder, plan, living)
        if same:
            log().info("Attempt %s: the trainer went back, in the same process", plan.n)
            return same
        log().info("The trainer of attempt %s is replaced by a new process", living.attempt)
        living.stop(grace_s=GRACE)
    elif _was_started(folder, plan.n):
        return None
    return _start(folder, plan, environment)


@task
def follow_trainer(
    folder: RunDir,
    plan: Plan,
    process: trainer.Trainer | None,
    show: Callable[[list[events.Event]], None],
    *,
    asked: Callable[[], Outcome | None] = lambda: None,
    sleep: Callable[[float], None] = time.sleep,
) -> AttemptFacts:
    """Follow the trainer to the end of the attempt, showing each new event, and judge it by the
    evidence. After an alarm the process may live on and wait for the next attempt; one that hangs
    is ended. When `asked` names an outcome the trainer saves, ends, and that is the attempt's.
    """
    follower = events.Follower(folder.events)
    watch = HangWatch(folder, plan, process) if process else None
    last_word_at: float | None = None
    while True:
        living = process is not None and process.alive()
        new = [event for event in follower.poll() if event["attempt"] == plan.n]
        show(new)
        if any(event["kind"] in ("end", "alarm", "error") for event in new):
            last_word_at = time.monotonic()
        if not living or waits(new, plan.n):
            break
        if watch and last_word_at is None and watch.ended(new):
            break
        if process and (wanted := asked()):
            return _stopped(folder, plan, process, wanted)
        if process and last_word_at and time.monotonic() - last_word_at > GRACE:
            log().warning("The trainer has finished but does not leave; it is ended")
            process.stop(grace_s=0)
        sleep(LOOK_EVERY)
    return read_facts(folder, plan, exit_code=process.exit_code() if process else None)


def _stopped(folder: RunDir, plan: Plan, process: trainer.Trainer, wanted: Outcome) -> AttemptFacts:
    """The facts of a healthy attempt that the parent wants ended, if it had not just completed."""
    log().warning("The training is stopped after a checkpoint (%s)", wanted)
    process.stop(grace_s=SAVE_WITHIN)
    facts = read_facts(folder, plan, exit_code=process.exit_code())
    if facts.outcome == "completed":
        return facts
    return replace(facts, outcome=wanted, reason=f"stopped after a checkpoint: {wanted}")


def _was_started(folder: RunDir, attempt: int) -> bool:
    last = trainer.last(folder)
    return (last is not None and last.attempt >= attempt) or was_rewound(folder, attempt)


def _start(folder: RunDir, plan: Plan, environment: Mapping[str, str]) -> trainer.Trainer:
    must_be_guarded(environment)
    gpus = gpus_here(environment)
    checkpoint = choose_start(folder, plan)
    code = Path(environment["AXR_REPOSITORY"])
    root = source_root(folder.path, code)  # relative names in the task file count from here
    shares, plan = choose_shares(folder, plan, checkpoint, len(gpus))
    if plan.overrides:
        write_adapted(folder, _task_file(folder, plan), environment, plan.overrides)
    drop_half_prepared(folder)
    axolotl_env = Path(environment["AXR_AXOLOTL_ENV"])
    started = trainer.start(
        folder,
        trainer.command(
            axolotl_env / "bin" / "axolotl",
            folder,
            resume_from=checkpoint.path if checkpoint else None,
            processes=shares.processes,
        ),
        trainer.trainer_environment(
            {
                **environment,
                **_only(gpus, shares.processes),
                **hub_environment(folder, environment),
                **remedies(folder),
                "PYTHONPATH": os.pathsep.join(dict.fromkeys([str(code), str(root)])),
            },
            axolotl_env=axolotl_env,
            run_dir=folder,
            gpu=bool(gpus),
        ),
        attempt=plan.n,
        cwd=root,
    )
    begin = checkpoint.path if checkpoint else "the start"
    log().info("Attempt %s: trainer started (pid %s), from %s", plan.n, started.pid, begin)
    return started


def _task_file(folder: RunDir, plan: Plan) -> TaskFile:
    """The task file, named as it is in the repository: names in it count from there."""
    text = folder.task_file.read_text("utf-8")
    return parse_task_file(text, plan.task_file or folder.task_file.name)


def _only(gpus: list[str], processes: int) -> dict[str, str]:
    """Hide the GPUs that the run did not ask for: one process would spread the model over all."""
    used = gpus[:processes]
    return {"CUDA_VISIBLE_DEVICES": ",".join(used)} if len(used) < len(gpus) else {}
