"""The logs of a run's pods on the control side: <run's folder>/logs/<pod>/<name>.log.

Pods send theirs (pod.sending). What a pod can't send, because it never came up or lost its way
home, its cloud is asked for before the pod is ended: cloud.log.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from blocks.cloud import Pod
from blocks.clouds import cloud, cloud_of
from blocks.logs import log
from pod.rundir import replace_text
from pod.sending import MOST_BYTES, end_of
from runner.errors import RunnerError
from runner.home import home
from runner.secrets import scrub
from tasks.standing import pods_of

CLOUD_LOG = "cloud.log"
# In the order in which things happen on a pod; the last one that is there tells why it is over.
OF_BOOT = (CLOUD_LOG, "boot.log", "worker.log")


def logs_of(run_id: str) -> Path:
    """The folder with a folder of logs for each pod."""
    return home().runs / run_id / "logs"


def keep_logs(run_id: str, known: Mapping[str, str]) -> None:
    """Ask the clouds for the logs of the run's living pods; `known` are its facts."""
    living = {bill["cloud"] for bill in pods_of(known).values() if not bill["terminated"]}
    for name in sorted(living):
        try:
            pod = cloud(name).find(run_id)
        except RunnerError as unseen:
            log().warning("The logs of the pod on %s are not kept: %s", name, unseen)
            continue
        if pod is not None:
            keep_cloud_log(pod)


def keep_cloud_log(pod: Pod) -> None:
    """Ask a pod's cloud for its log; nothing is kept where it has none or can't say now."""
    try:
        text = scrub(cloud_of(pod).log(pod))
    except RunnerError as unseen:
        log().warning("The cloud does not give the log of the pod %s: %s", pod.id, unseen)
        return
    if text.strip():
        replace_text(logs_of(pod.run) / pod.id / CLOUD_LOG, text[-MOST_BYTES:])


def boot_log(run_id: str, pod_id: str) -> str:
    """What is known of a pod's boot."""
    folder = logs_of(run_id) / pod_id
    return "\n".join(end_of(folder / name) for name in OF_BOOT)


def kept_log(run_id: str, name: str) -> str:
    """The end of this log of the run's newest pod that has one; a local pod's is the run's own."""
    own = home().runs / run_id / name
    found = [own, *logs_of(run_id).glob(f"*/{name}")]
    newest = max((path for path in found if path.exists()), key=_changed, default=own)
    return scrub(end_of(newest))


def _changed(path: Path) -> float:
    return path.stat().st_mtime
