"""A real guard on an emulated pod: what it does when everything else is dead."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pod import trainer
from pod.access import prove
from pod.rundir import write_json
from tests.emulators.hub import running
from tests.emulators.testing import until
from tests.integration.clouds.guard_rig import CLOUDS, RUN, TOKEN, Guarded, guarded
from tests.stores import train

TASK = "base_model: m\ndatasets: [{path: d, type: alpaca}]\nrunner: {cloud: local}\n"


@pytest.mark.parametrize("name", CLOUDS)
def test_a_pod_ends_itself_when_the_control_side_is_gone_for_good(
    name: str, tmp_path: Path
) -> None:
    """H51, H56: not while the lease is renewed, and soon after it is not any more."""
    with guarded(name, tmp_path) as it:
        it.control.renewing = True
        it.rent()
        assert it.mark("access")["state"] == "proved"
        time.sleep(2.5)
        assert it.pods, "the lease was renewed"
        it.control.renewing = False
        until(lambda: it.gone, 20.0)
        assert it.mark("ended")["why"] == "lease"
        assert set(it.control.asked) == {(f"/api/flow_runs/{RUN}", f"Bearer {TOKEN}")}


@pytest.mark.parametrize("name", CLOUDS)
def test_a_control_side_that_is_away_for_a_moment_ends_nothing(name: str, tmp_path: Path) -> None:
    """H21: a read that fails is no answer; what it said last holds."""
    with guarded(name, tmp_path) as it:
        it.control.renewing = True
        it.rent(AXR_LEASE="6")
        it.control.labels = None
        asked = len(it.control.asked)
        until(lambda: len(it.control.asked) > asked, 10.0)
        it.control.labels = {}
        time.sleep(4.0)
        assert it.pods
        assert it.mark("ended") == {}


@pytest.mark.parametrize("name", CLOUDS)
def test_an_api_that_is_down_at_the_end_is_asked_until_it_is_back(
    name: str, tmp_path: Path
) -> None:
    """H22: neither 503 nor 429 nor 500 is an end."""
    with guarded(name, tmp_path) as it:
        it.control.renewing = True
        it.rent()
        it.emulator.set(status=[{"status": status, "times": 4} for status in (503, 429, 500)])
        it.control.renewing = False
        until(lambda: it.gone, 30.0)
        ends = [c for c in it.emulator.state["requests"] if c["method"] == "DELETE"]
        assert len(ends) > 3
        assert it.mark("ended")["why"] == "lease"


@pytest.mark.parametrize("name", CLOUDS)
def test_reads_that_fail_do_not_make_a_refused_key(name: str, tmp_path: Path) -> None:
    """H21: unknown until the API answers; then proved."""
    with guarded(name, tmp_path) as it:
        it.control.renewing = True
        paths = ("pods/", "graphql", r"instances/\d+")  # no listing, no create call
        it.emulator.set(status=[{"status": 503, "times": 12, "path": path} for path in paths])
        it.rent()
        assert it.mark("access")["state"] == "unknown"
        until(lambda: it.mark("access")["state"] == "proved", 20.0)


@pytest.mark.parametrize("name", CLOUDS)
def test_a_lapsed_lease_waits_for_the_trainer(name: str, tmp_path: Path) -> None:
    """H52: a healthy training outlives a dead control side; the pod ends when it is done."""
    with guarded(name, tmp_path) as it:
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        try:
            start = trainer._start_time(process.pid)
            write_json(it.run_dir.trainer_pid, {"pid": process.pid, "start": start, "attempt": 1})
            it.rent()
            time.sleep(3.0)
            assert it.pods
        finally:
            process.kill()
            process.wait()
        until(lambda: it.gone, 20.0)


def test_a_guard_that_is_killed_is_started_again_and_knows_what_it_knew(tmp_path: Path) -> None:
    """H17: with the container, the budget as it was told last."""
    with guarded("runpod", tmp_path) as it:
        it.control.renewing = True
        it.control.labels = {"axr.ends_at": time.time() - 20}
        it.rent(AXR_KEEP="yes")
        until(lambda: it.mark("lease").get("ends_at"), 10.0)
        it.control.labels = None
        it.kill_guard()
        until(lambda: it.gone, 40.0)
        assert it.mark("ended")["why"] == "budget"
        assert it.emulator.state["ended"][0]["boots"] == 2


def test_the_only_copy_goes_to_a_private_repository_before_the_pod_ends(tmp_path: Path) -> None:
    """No model is lost: without a store the hub takes it, by the worker's Python."""
    with running() as hub, guarded("vast", tmp_path) as it:
        it.run_dir.task_file.write_text(TASK)
        train(it.run_dir, range(1, 21))
        it.rent(HF_ENDPOINT=hub.url, HF_TOKEN="hf_write")
        until(lambda: it.gone, 60.0)
        repository = hub.state["repos"][f"me/axr-rescue-{RUN}"]
        assert repository["private"]
        assert f"{RUN}/checkpoint-20.json" in repository["files"]
        assert it.mark("rescue")["ok"] is True


def test_a_pod_whose_model_can_go_nowhere_is_kept_until_its_deadline(tmp_path: Path) -> None:
    """Said loudly, tried again, and ended then."""
    with running() as hub, guarded("runpod", tmp_path) as it:
        it.run_dir.task_file.write_text(TASK)
        train(it.run_dir, range(1, 21))
        deadline = int(time.time()) - 15
        it.rent(HF_ENDPOINT=hub.url, HF_TOKEN="hf_read", AXR_DEADLINE=str(deadline))
        until(lambda: it.mark("rescue"), 30.0)
        assert it.mark("ended")["why"] == "lease"
        assert it.pods, "before its deadline"
        until(lambda: it.gone, 60.0)
        assert it.mark("ended")["why"] == "deadline"
        assert "may only read" in it.mark("rescue")["why"]
        pod = it.emulator.state["ended"][0]["id"]
        said = "\n".join(it.emulator.lines(pod))
        assert "THE POD IS KEPT UNTIL ITS DEADLINE" in said
        assert "IT IS LOST NOW" in said


@pytest.mark.parametrize(
    ("name", "switches", "state"),
    [
        ("runpod", {"scoped_key_v2": False}, "proved"),
        ("runpod", {"scoped_key_v2": False, "graphql_410": True}, "unknown"),
        ("vast", {"scoped_key": False}, "refused"),
        ("vast", {}, "proved"),
    ],
)
def test_what_the_pods_own_key_must_open(
    name: str, switches: dict[str, bool], state: str, tmp_path: Path
) -> None:
    """By REST or GraphQL on RunPod, by being told to start on Vast; a reboot is no part of it."""
    with guarded(name, tmp_path) as it:
        it.control.renewing = True
        it.emulator.set(**switches)
        it.rent(AXR_LEASE="30")
        assert it.mark("access")["state"] == state
        assert it.pods[0]["boots"] == 1
        it.emulator.set(reset=True)


@pytest.mark.parametrize("name", CLOUDS)
def test_a_wrong_key_is_refused_and_a_missing_one_too(name: str, tmp_path: Path) -> None:
    """Nothing is trained with either."""
    variable = {"runpod": "RUNPOD_API_KEY", "vast": "CONTAINER_API_KEY"}[name]
    with guarded(name, tmp_path) as it:
        here = {"AXR_CLOUD": name, "AXR_POD": "1", "AXR_CLOUD_API": _api(it)}
        assert prove({**here, variable: "wrong"}).state == "refused"
        missing = prove(here)
        assert (missing.state, variable in missing.why) == ("refused", True)
        away = {**here, "AXR_CLOUD_API": "http://127.0.0.1:9/v2", variable: "x"}
        assert prove(away).state == "unknown"


def test_of_two_guards_the_second_waits_for_the_end_of_the_first(tmp_path: Path) -> None:
    """A double guard does no harm, and takes over at once."""
    with guarded("runpod", tmp_path) as it:
        it.environment |= {
            "AXR_POD": "p1",
            "AXR_CLOUD_API": _api(it),
            "RUNPOD_API_KEY": "wrong",
            "AXR_LEASE": "600",
            "TMPDIR": str(tmp_path),
        }
        guards = []
        try:
            for _ in range(2):
                command = [sys.executable, "-m", "pod.guard"]
                environment = {**os.environ, **it.environment}
                guards.append(
                    subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
                )
                until(lambda: (tmp_path / "axr-guard-p1.lock").exists(), 10.0)
                until(lambda: it.control.asked, 10.0)
            time.sleep(0.5)
            assert len(it.control.asked) == 1, "the second has not begun"
            guards[0].kill()
            until(lambda: len(it.control.asked) == 2, 10.0)
        finally:
            for guard in guards:
                guard.kill()
                guard.communicate()


def _api(it: Guarded) -> str:
    url = str(it.emulator.url)
    return f"{url}/api/v0" if it.environment["AXR_CLOUD"] == "vast" else url
