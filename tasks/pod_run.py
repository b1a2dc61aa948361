"""What the flows on a pod know of where they are, and the lock that says that they live."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prefect.runtime import flow_run

from blocks.logs import log
from pod.rundir import RunDir
from pod.sending import send_logs
from runner.locks import hold
from tasks.api import api


def run_dir(run: str) -> RunDir:
    """The run's folder on this pod's volume.

    The real path: it stays the same on the next local pod.
    """
    return RunDir((Path(os.environ["AXR_VOLUME"]) / run).resolve())


def follower_lock(run: str, flow_run_id: str) -> Path:
    """The file that a flow on this pod holds as long as it lives."""
    return run_dir(run).path / "locks" / f"{flow_run_id}.lock"


@contextmanager
def alive(run: str) -> Iterator[RunDir]:
    """Hold this flow run's lock for the length of the block; waits for a twin that still lives.

    At its end the pod's logs go to the control side: the pod may be gone a moment later.
    """
    folder = run_dir(run)
    folder.path.mkdir(parents=True, exist_ok=True)
    with hold(follower_lock(run, str(flow_run.id)), wait=True):
        try:
            yield folder
        finally:
            if why := send_logs():
                log().warning("The pod's logs: %s", why)


def is_cancelling(flow_run_id: str) -> bool:
    """True when the server says that this flow run was cancelled, not merely told to stop."""
    prefect = api()
    state = prefect.read_flow_run(flow_run_id).state  # type: ignore[arg-type]
    return bool(state and (state.is_cancelling() or state.is_cancelled()))
