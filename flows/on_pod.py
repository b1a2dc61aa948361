"""The three flows that run on the pod, through its Prefect worker: prepare, train, publish.

Their returned states carry facts for the parent in the message, since results stay on the pod's
disk. They have no retries: a flow with retries turns a custom failed state into AwaitingRetry.
"""

from __future__ import annotations

import json
from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.exceptions import TerminationSignal
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from blocks.logs import log
from pod import trainer
from pod.pulse import read_pulse
from pod.rundir import RunDir
from pod.saving import NotSaved
from pod.store.places import StoreError
from runner.attempts import to_message
from runner.errors import RunEnded, state_name
from runner.report import Rung
from tasks.api import API_AWAY, ApiLost
from tasks.facts import read_facts, refused
from tasks.fetching import fetch_inputs
from tasks.guarding import must_be_guarded
from tasks.phase_label import PhaseLabel
from tasks.pod_run import alive, is_cancelling
from tasks.progress import Progress
from tasks.publishing import gather_model, merge_adapter, upload
from tasks.safety import bring_to_safety, tell_only_copy
from tasks.setup import run_entry, write_run_files
from tasks.standing import leave_facts, leave_pod
from tasks.stopping import SAVED_FIRST, AskedToStop
from tasks.storing import bring_checkpoints, start_mirror, tending, wait_until_stored
from tasks.surroundings import Surroundings
from tasks.trainer import Plan, follow_trainer, start_or_attach

# Prefect kills a cancelled flow 30 s after its SIGTERM; the trainer's checkpoint must be on disk
# before.
SAVE_WITHIN = 20.0
STORED_AFTER_CANCEL = 6.0
STORED_WITHIN = 600.0


@flow(name="prepare", log_prints=True)
def prepare(
    run: str, task_file: str, content: str, commits: dict[str, str] | None = None
) -> State[Any]:
    """Put the run's files on the volume, run the user's entry script, and fetch what the training
    reads from the hub.

    Args:
        run: id of the run.
        task_file: path of the task file in the repository.
        content: its text.
        commits: of the hub's repositories, as an earlier pod of the run has used them.
    """
    try:
        with alive(run) as folder:
            must_be_guarded()
            task = write_run_files(folder, content, task_file)
            run_entry(folder, task.settings.entry)
            fetched = fetch_inputs(folder, run, task, commits)
    except RunEnded as ended:
        return Failed(name=state_name(ended.outcome), message=str(ended))
    return Completed(message=json.dumps({"commits": fetched}))


@flow(name="train", log_prints=True)
def train(
    run: str,
    attempt: int,
    before: int | None = None,
    rung: Rung | None = None,
    factors: dict[str, float] | None = None,
    overrides: dict[str, int] | None = None,
    why: str = "",
    last: bool = False,
    task_file: str | None = None,
) -> State[Any]:
    """Train once: start the trainer or attach to it, follow it, and say how it ended.

    Args:
        run: id of the run.
        attempt: number of the attempt, from 1.
        before: the step where the trouble of the attempt before began.
        rung: what this attempt changes.
        factors: of learning_rate and weight_decay, relative to the task file's.
        overrides: keys of axolotl and the values that they have instead of the task file's.
        why: the trouble of the attempt before.
        last: no further attempt would follow.
        task_file: path of the task file in the repository.
    """
    plan = Plan(attempt, before, rung, factors or {}, overrides or {}, why, last, task_file)
    with alive(run) as folder:
        try:
            leave_pod(str(flow_run.id))
            bring_checkpoints(folder, run, plan)
            start_mirror(folder)
            process = start_or_attach(folder, plan)
            progress = Progress(
                run, attempt, pulse=lambda: read_pulse(folder), around=Surroundings().watched()
            )
            show = tending(folder, progress)
            show = PhaseLabel(folder, str(flow_run.id), show, progress.known)
            asked = AskedToStop(str(flow_run.id))
            facts = follow_trainer(folder, plan, process, show, asked=asked)
            if facts.outcome in SAVED_FIRST:
                log().info("%s", _bring_to_safety(folder, run))
            elif last and facts.outcome != "completed":  # the pod goes next
                wait_until_stored(folder, STORED_WITHIN)
        except TerminationSignal:
            _stop_if_cancelled(folder, plan)
            raise
        except StoreError as error:
            return Failed(name="Crash", message=str(error))
        except RunEnded as wrong:  # before any training
            return Failed(
                name=state_name(wrong.outcome), message=to_message(refused(folder, plan, wrong))
            )
        except (
            API_AWAY
        ) as away:  # the trainer goes on; a follower that counts as crashed comes back
            raise ApiLost(f"the Prefect API is away: {away}") from away
    if facts.outcome == "completed":
        return Completed(message=to_message(facts))
    return Failed(name=state_name(facts.outcome), message=to_message(facts))


@flow(name="publish", log_prints=True)
def publish(
    run: str, repository: str | None = None, told: dict[str, Any] | None = None
) -> State[Any]:
    """Gather the final weights and upload them when the task file names a hub repository, else see
    that they outlive the pod.

    Args:
        run: id of the run.
        repository: where to on the hub.
        told: where the model comes from, for its card (runner.provenance).
    """
    with alive(run) as folder:
        try:
            gather_model(folder, merge_adapter(folder))
            published = upload(folder, repository, told)
        except Exception as failed:  # whatever it is: the model must not go with the pod
            log().exception("The model could not be published")
            return Failed(name="Crash", message=f"{failed}; {_bring_to_safety(folder, run)}")
        if not published:
            log().info("%s", _bring_to_safety(folder, run))
        folder.finished.touch()  # a container that is started again has nothing to do
    return Completed(message=published or "")


def _bring_to_safety(folder: RunDir, run: str) -> str:
    """Where the model is safe; else the parent is told to leave this pod to its guard."""
    try:
        return bring_to_safety(folder, run)
    except NotSaved as failed:
        tell_only_copy(str(flow_run.id), str(failed))
        return f"the model is on this pod alone: {failed}"


def _stop_if_cancelled(folder: RunDir, plan: Plan) -> None:
    """A cancelled run stops its trainer, which saves first; a follower that is merely told to stop
    detaches.
    """
    if not is_cancelling(str(flow_run.id)):
        return
    living = trainer.find(folder)
    if living:
        living.stop(grace_s=SAVE_WITHIN)
    leave_facts(str(flow_run.id), read_facts(folder, plan, outcome="cancelled"))
    wait_until_stored(folder, STORED_AFTER_CANCEL)
