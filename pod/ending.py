"""End the pod that this runs on, by whatever way its cloud has; standard library only.

RunPod injects a key that is good for its own pod. What that may do by REST v2 is written nowhere,
so GraphQL is tried after it (seen to work); the parent and the sweep remain. Vast injects one that
may destroy its own instance.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from pod.asking import ask
from pod.sending import note

AGAIN_AFTER = 15.0  # seconds
KILL_TRIES = 200
TERMINATE = "mutation ($id: String!) { podTerminate(input: {podId: $id}) }"


def end_this_pod(
    environment: Mapping[str, str] = os.environ, *, sleep: Callable[[float], None] = time.sleep
) -> None:
    """End it; on a rented pod this asks until the cloud takes the machine away."""
    pod = environment["AXR_POD"]
    end_rented = {"runpod": end_runpod_pod, "vast": end_vast_pod}.get(
        environment.get("AXR_CLOUD", "")
    )
    while end_rented:
        say(f"ending the pod {pod}: {end_rented(environment)}")
        sleep(AGAIN_AFTER)
    end_local_pod(pod)


def end_runpod_pod(environment: Mapping[str, str]) -> str:
    """Ask RunPod once, by REST and, where that is refused, by GraphQL; what was answered."""
    api, pod = environment["AXR_CLOUD_API"].rstrip("/"), environment["AXR_POD"]
    key = environment.get("RUNPOD_API_KEY", "")
    status = ask("DELETE", f"{api}/pods/{pod}", key).status
    if status in (204, 404):
        return f"REST {status}"
    graphql = api.rpartition("/")[0] + "/graphql"
    question = {"query": TERMINATE, "variables": {"id": pod}}
    return f"REST {status}, GraphQL {ask('POST', graphql, key, question).status}"


def end_vast_pod(environment: Mapping[str, str]) -> str:
    """Ask Vast once; what was answered. HTTP 200 may be a refusal, so only the end is the end."""
    url = f"{environment['AXR_CLOUD_API'].rstrip('/')}/instances/{environment['AXR_POD']}/"
    return f"DELETE {ask('DELETE', url, environment.get('CONTAINER_API_KEY', ''), {}).status}"


def end_local_pod(pod: str, *, sleep: Callable[[float], None] = time.sleep) -> None:
    """SIGKILL every other process that carries the pod's mark, those forked meanwhile too.

    One that the kernel does not let go of is left after KILL_TRIES looks.
    """
    for _ in range(KILL_TRIES):
        left = list(_marked(pod))
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not left:
            break
        sleep(0.05)
    say(f"the pod {pod} was ended")


def say(what: str) -> None:
    """One line in the pod's log."""
    print(f"guard: {what}", flush=True)
    note(os.environ, "guard.log", f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {what}")


def _marked(pod: str) -> Iterator[int]:
    wanted = f"AXR_POD={pod}".encode()
    for entry in Path("/proc").iterdir():
        try:
            carries = entry.name.isdigit() and wanted in (entry / "environ").read_bytes().split(
                b"\0"
            )
        except OSError:  # gone meanwhile, or another user's
            continue
        if carries and int(entry.name) != os.getpid():
            yield int(entry.name)


if __name__ == "__main__":
    end_this_pod()
