import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pod.ending import end_runpod_pod, end_this_pod
from runner.home import REPOSITORY
from tests.emulators.testing import until
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


@pytest.mark.parametrize("keep", ["", "yes"], ids=["one shot", "kept"])
def test_a_container_that_starts_again_after_its_run_has_finished(
    tmp_path: Path, keep: str
) -> None:
    """H17, R7: nothing is trained again; unless somebody wants to look around the pod ends, and no
    worker is started before that.
    """
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "finished").touch()
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/called\n'
        f'[ "$2 $3" = "pod.guard --over" ] && exec {sys.executable} "$@"\nexec sleep 60\n'
    )
    python.chmod(0o755)
    with rented() as it:
        pod = it.cloud.create(order())
        environment = {
            **_environment(it, pod.id),
            "PATH": os.environ["PATH"],
            "AXR_RUN": "run",
            "AXR_VOLUME": str(tmp_path),
            "AXR_DEADLINE": str(int(time.time()) + 3600),
            "AXR_REPOSITORY": str(REPOSITORY),
            "AXR_PYTHON": str(python),
            "AXR_KEEP": keep,
        }
        boot = subprocess.Popen(
            ["bash", "pod/boot.sh"], cwd=REPOSITORY, env=environment, start_new_session=True
        )
        called = tmp_path / "called"
        try:
            until(lambda: len(_lines(called)) > 1 or not it.pods, 20.0)
            assert _lines(called)[0] == "-m pod.guard --over"
            assert bool(it.pods) == bool(keep)
            if keep:
                until(lambda: len(_lines(called)) > 2, 20.0)
                assert set(_lines(called)[1:3]) == {"-m pod.guard", "-m pod.install"}
            else:
                assert len(_lines(called)) == 1
        finally:
            os.killpg(boot.pid, signal.SIGKILL)
            boot.wait()


def test_a_guard_that_dies_is_started_again(tmp_path: Path) -> None:
    """H51: by boot.sh, whatever ended it, and whether or not the worker lives."""
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/called\n'
        '[ "$3" = --over ] && exit 3\n[ "$2" = pod.guard ] && exit 9\nexec sleep 60\n'
    )
    python.chmod(0o755)
    environment = {
        "PATH": os.environ["PATH"],
        "AXR_POD": "p",
        "AXR_RUN": "run",
        "AXR_VOLUME": str(tmp_path),
        "AXR_REPOSITORY": str(REPOSITORY),
        "AXR_PYTHON": str(python),
    }
    boot = subprocess.Popen(
        ["bash", "pod/boot.sh"], cwd=REPOSITORY, env=environment, start_new_session=True
    )
    try:
        until(lambda: _lines(tmp_path / "called").count("-m pod.guard") == 2, 20.0)
    finally:
        os.killpg(boot.pid, signal.SIGKILL)
        boot.wait()


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
