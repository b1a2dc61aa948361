"""Instances of the Vast emulator as real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emulators.testing import alive, plain_client, until
from tests.emulators.vast import Emulator
from tests.emulators.vast.testing import ASK, Rig, order, rig

SHOW = "import os, json; print(json.dumps(dict(os.environ)), flush=True)"


@pytest.fixture
def one() -> Iterator[Rig]:
    with rig() as made:
        yield made


def test_the_environment_is_the_instances_and_nothing_of_ours(
    one: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values pass unharmed; /workspace is a folder on the instance's disk."""
    monkeypatch.setenv("SECRET_OF_THE_EMULATOR", "1")
    given = {
        "NOTE": "say \"hi\" $HOME 'x' \\n",
        "LINES": "one\ntwo",
        "AXR_VOLUME": "/workspace/axr",
    }
    env = {**given, "CONTAINER_ID": "forged", "-p 22:22": "1"}
    made = one.running(onstart=sys.executable, args=["-c", SHOW], env=env)
    until(lambda: one.cloud.lines(made))
    seen = json.loads(one.cloud.lines(made)[0])
    (state,) = one.cloud.state["pods"]
    assert (seen["NOTE"], seen["LINES"]) == (given["NOTE"], given["LINES"])
    assert seen["AXR_VOLUME"] == f"{state['root']}/workspace/axr"
    assert (seen["CONTAINER_ID"], seen["CONTAINER_API_KEY"]) == (str(made), state["key"])
    assert (seen["VAST_CONTAINERLABEL"], seen["GPU_COUNT"]) == (f"C.{made}", "1")
    assert seen["VAST_TCP_PORT_22"] == one.pod(made)["ports"]["22/tcp"][0]["HostPort"]
    assert "SECRET_OF_THE_EMULATOR" not in seen


def test_a_container_that_ends_is_started_again_on_the_same_disk(one: Rig) -> None:
    """So does a stop keep it; a destroy does not."""
    made = one.running(args=["-c", "echo x >> $HOME/f; wc -l < $HOME/f"])
    until(lambda: one.cloud.lines(made) == ["1"])

    def twice() -> bool:
        one.cloud.advance(0.2)
        return one.cloud.lines(made)[:2] == ["1", "2"]

    until(twice)
    (state,) = one.cloud.state["pods"]
    one.api.put(f"/api/v0/instances/{made}/", json={"state": "stopped"})
    assert Path(state["root"], "f").exists()
    one.api.request("DELETE", f"/api/v0/instances/{made}/", json={})
    assert not Path(state["root"]).exists()


def test_destroy_ends_detached_grandchildren_too(one: Rig) -> None:
    """A session of its own does not save a process."""
    script = "trap '' TERM; setsid sh -c 'echo $$; exec sleep 60' & wait"
    made = one.running(args=["-c", script])
    until(lambda: one.cloud.lines(made))
    grandchild = int(one.cloud.lines(made)[0])
    assert alive(grandchild)
    one.api.request("DELETE", f"/api/v0/instances/{made}/", json={})
    assert not alive(grandchild)


def test_an_instance_that_ends_itself_still_gets_its_answer(one: Rig) -> None:
    """With the key that it was given."""
    script = (
        "import os, time, urllib.request as u; e = os.environ; "
        "url = e['API'] + '/api/v0/instances/' + e['CONTAINER_ID'] + '/'; "
        "h = {'Authorization': 'Bearer ' + e['CONTAINER_API_KEY']}; "
        "print(u.urlopen(u.Request(url, method='DELETE', headers=h)).status, flush=True); "
        "time.sleep(60)"
    )
    made = one.running(onstart=sys.executable, args=["-c", script], env={"API": one.cloud.url})
    until(lambda: one.cloud.lines(made) == ["200"])
    one.cloud.advance(0.2)
    assert one.cloud.state["pods"] == []
    assert one.cloud.state["ended"][0]["reason"] == str(made)


def test_other_ways_to_run(one: Rig) -> None:
    """ssh replaces the entrypoint and runs onstart; without anything the container idles."""
    made = one.running(runtype="ssh_direc ssh_proxy", onstart="echo up", args=None)
    until(lambda: one.cloud.lines(made) == ["up"])
    idle = one.running(ASK + 1, onstart=None, args=None)
    assert one.cloud.lines(idle) == []
    assert one.pod(idle)["actual_status"] == "running"


def test_a_process_of_its_own_ends_its_instances_on_sigterm(tmp_path: Path) -> None:
    """`python -m` says where it is, and leaves nothing."""
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.emulators.vast", "--home", tmp_path, "--key", "k"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "AXR_EMULATED_IMAGE_ENV": '{"AXR_PYTHON": "python9"}'},
    )
    with server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        with plain_client(base_url=url, headers={"Authorization": "Bearer k"}) as api:
            body = order(args=["-c", "echo $AXR_PYTHON; exec sleep 60"])
            made = api.put(f"/api/v0/asks/{ASK}/", json=body).json()["new_contract"]
            api.post("/_clock", json={"advance": 1})
            (state,) = api.get("/_state").json()["pods"]
            assert alive(state["pid"])
        until(lambda: "container: python9" in Path(state["log"]).read_text())
        server.send_signal(signal.SIGTERM)
        assert server.wait(10) == 0
    assert not alive(state["pid"])
    assert list((tmp_path / "pods").iterdir()) == []
    assert (tmp_path / "logs" / f"{made}.log").exists()


def test_instances_that_a_killed_emulator_left_are_ended_by_the_next(tmp_path: Path) -> None:
    """By their folders in the same home."""
    (tmp_path / "pods" / "2000000001").mkdir(parents=True)
    left = subprocess.Popen(["sleep", "60"], env={"CONTAINER_ID": "2000000001"})
    with Emulator(home=tmp_path):
        assert left.wait(5) == -signal.SIGKILL
