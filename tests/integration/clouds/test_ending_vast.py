import os
import subprocess
import sys

import pytest

from pod.ending import end_this_pod, end_vast_pod
from runner.home import REPOSITORY
from tests.integration.clouds.vast_rig import Rented, order, rented


class Taken(Exception):
    """The machine is gone."""


def _environment(it: Rented) -> dict[str, str]:
    """What the pod's own processes have."""
    (pod,) = it.pods
    return {
        "AXR_CLOUD": "vast",
        "AXR_POD": str(pod["id"]),
        "AXR_CLOUD_API": pod["env"]["AXR_CLOUD_API"],
        "CONTAINER_API_KEY": pod["key"],
    }


def test_a_pod_of_vast_ends_itself_with_its_own_key() -> None:
    """V10: else Vast would start its container again and again."""
    with rented() as it:
        it.cloud.create(order())
        assert end_vast_pod(_environment(it)) == "DELETE 200"
        it.emulator.advance(1)
        assert it.pods == []


def test_it_asks_until_the_machine_is_taken_away() -> None:
    """Vast's HTTP 200 may be a refusal."""
    with rented(destroy_status={"status": 200, "times": 2}) as it:
        it.cloud.create(order())
        tries = 0

        def sleep(seconds: float) -> None:
            nonlocal tries
            tries += 1
            it.emulator.advance(seconds)
            if not it.pods:
                raise Taken

        with pytest.raises(Taken):
            end_this_pod(_environment(it), sleep=sleep)
        assert tries == 3


def test_a_pod_without_our_code_ends_itself_too() -> None:
    """The few lines in start.sh, for a gateway that is never reached."""
    script = (REPOSITORY / "pod" / "start.sh").read_text()
    ending = script.split("<<'PY'\n")[2].split("\nPY")[0]
    with rented() as it:
        it.cloud.create(order())
        environment = {"PATH": os.environ["PATH"], **_environment(it)}
        subprocess.run([sys.executable, "-c", ending], env=environment, check=True)
        it.emulator.advance(1)
        assert it.pods == []
