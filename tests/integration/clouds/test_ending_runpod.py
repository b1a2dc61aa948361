import os
import subprocess
from pathlib import Path

import pytest

from pod.ending import end_runpod_pod, end_this_pod
from runner.home import REPOSITORY
from tests.integration.clouds.runpod_rig import Rented, order, rented


def _environment(it: Rented, pod_id: str) -> dict[str, str]:
    """What the pod's own processes have."""
    (pod,) = (pod for pod in it.pods if pod["id"] == pod_id)
    return {
        "AXR_CLOUD": "runpod",
        "AXR_POD": pod_id,
        "AXR_CLOUD_API": it.emulator.url,
        "RUNPOD_API_KEY": pod["key"],
    }


def test_a_rented_pod_ends_itself_with_its_own_key() -> None:
    """By REST v2, where its key may do that."""
    with rented() as it:
        pod = it.cloud.create(order())
        assert end_runpod_pod(_environment(it, pod.id)) == "REST 204"
        it.emulator.advance(1)
        assert it.pods == []


def test_graphql_ends_it_where_rest_refuses_its_key() -> None:
    """What RunPod's v2 allows such a key is written nowhere."""
    with rented(scoped_key_v2=False) as it:
        pod = it.cloud.create(order())
        assert end_runpod_pod(_environment(it, pod.id)) == "REST 403, GraphQL 200"
        it.emulator.advance(1)
        assert it.pods == []


def test_it_asks_until_the_machine_is_taken_away() -> None:
    """An API that is away costs a pause, not the night."""

    class Taken(Exception):
        """The machine is gone."""

    tries = 0

    def sleep(seconds: float) -> None:
        nonlocal tries
        tries += 1
        if tries == 3:
            raise Taken

    away = {"AXR_CLOUD": "runpod", "AXR_POD": "p", "AXR_CLOUD_API": "http://127.0.0.1:9/v2"}
    with pytest.raises(Taken):
        end_this_pod(away, sleep=sleep)
    assert tries == 3


@pytest.mark.parametrize(
    ("keep", "does"), [("", "-m pod.ending"), ("yes", "-m pod.guard")], ids=["one shot", "kept"]
)
def test_a_container_that_starts_again_after_its_run_has_finished(
    tmp_path: Path, keep: str, does: str
) -> None:
    """H17, R7: nothing is trained again; unless somebody wants to look around the pod ends."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "finished").touch()
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/called\nexit 7\n')
    python.chmod(0o755)
    environment = {
        "PATH": os.environ["PATH"],
        "AXR_POD": "p",
        "AXR_RUN": "run",
        "AXR_VOLUME": str(tmp_path),
        "AXR_REPOSITORY": str(REPOSITORY),
        "AXR_PYTHON": str(python),
        "AXR_KEEP": keep,
    }
    boot = subprocess.Popen(["bash", "pod/boot.sh"], cwd=REPOSITORY, env=environment)
    try:
        called = tmp_path / "called"
        while not called.exists() or not called.read_text():
            assert boot.poll() is None or called.exists()
        assert called.read_text().splitlines()[0] == does
    finally:
        boot.kill()
        boot.wait()
