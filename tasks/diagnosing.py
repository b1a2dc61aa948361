"""What a run failed of: as its last attempt said, or by the logs that its pods left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from blocks.cloud import Pod
from runner.attempts import AttemptFacts
from runner.diagnosis import Diagnosis, diagnose
from runner.errors import Outcome
from tasks.pod_logs import boot_log, keep_cloud_log, kept_log, logs_of

ENTRY = "`entry`"  # how the reason of a failed entry script begins
NO_WORKER = "no worker on the pod"


def diagnosis_of(
    run_id: str, outcome: Outcome, reason: str, done: Sequence[AttemptFacts]
) -> Diagnosis | None:
    """Why the run ended so, None where that needs no diagnosis."""
    last = done[-1] if done else None
    if last and last.diagnosis and last.outcome == outcome:
        return last.diagnosis
    if reason.startswith(ENTRY):
        return diagnose(outcome, reason, kept_log(run_id, "entry.log"))
    if NO_WORKER in reason:
        pods = sorted(logs_of(run_id).glob("*"), key=lambda path: path.stat().st_mtime)
        log = boot_log(run_id, pods[-1].name) if pods else ""
        return diagnose(outcome, reason, log, of_pod=True)
    return diagnose(outcome, reason)


def why_not_started(pod: Pod, why: str) -> Diagnosis:
    """What keeps a pod from coming up, by its logs; call it while the pod is there."""
    keep_cloud_log(pod)
    reason = f"the pod did not start: {why}"
    found = diagnose("no_capacity", reason, boot_log(pod.run, pod.id))
    assert found is not None, "this outcome is always diagnosed"
    return found if found.lines != (reason,) else replace(found, lines=())
