"""Pods of the emulator as real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.emulators.containers import mapped
from tests.emulators.images import default_images
from tests.emulators.runpod import Emulator
from tests.emulators.runpod.commands import command_of
from tests.emulators.runpod.testing import Rig, order, rig
from tests.emulators.testing import alive, plain_client, until

VOLUME = {"persistent": {"size": 10, "path": "/workspace"}}


@pytest.fixture
def one() -> Iterator[Rig]:
    with rig() as made:
        yield made


def test_a_container_that_ends_is_started_again_on_an_empty_disk(one: Rig) -> None:
    """Uptime and tcp ports are new, the volume stays; `startedAt` says when."""
    script = (
        "echo $RUNPOD_TCP_PORT_22; echo x >> $AXR_VOLUME; echo x >> $HOME/f; "
        "cat $AXR_VOLUME $HOME/f | wc -l"
    )
    pod = one.running(
        args=f"sh -c '{script}'",
        env={"AXR_VOLUME": "/workspace/count"},
        ports=["22/tcp"],
        mounts=VOLUME,
    )
    until(lambda: len(one.cloud.lines(pod)) == 2)
    until(lambda: one.pod(pod)["startedAt"] is None)
    one.cloud.advance(0.2)
    until(lambda: len(one.cloud.lines(pod)) == 4)
    first_port, first, second_port, second = one.cloud.lines(pod)
    assert (first, second) == ("2", "3")
    assert first_port != second_port
    assert one.cloud.state["pods"][0]["boots"] == 2
    assert one.cloud.lines(pod, "system")[2:4] == [
        "the container ended with 0",
        "start container, boot 2",
    ]


def test_the_environment_is_the_pods_and_nothing_of_ours(
    one: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values pass unharmed; the mount path is replaced only where it begins a value."""
    monkeypatch.setenv("SECRET_OF_THE_EMULATOR", "1")
    given = {
        "NOTE": "say \"hi\" $HOME 'x' \\n",
        "LINES": "one\ntwo",
        "AXR_VOLUME": "/workspace/axr",
        "OTHER": "/workspaces/axr:/workspace",
        "RUNPOD_POD_ID": "forged",
    }
    show = "import os, json; print(json.dumps(dict(os.environ)))"
    pod = one.running(args=f"{sys.executable} -c '{show}'", env=given, mounts=VOLUME)
    until(lambda: one.cloud.lines(pod))
    seen = httpx.Response(200, text=one.cloud.lines(pod)[0]).json()
    (state,) = one.cloud.state["pods"]
    assert {name: seen[name] for name in ("NOTE", "LINES", "OTHER")} == {
        name: given[name] for name in ("NOTE", "LINES", "OTHER")
    }
    assert seen["AXR_VOLUME"] == f"{state['volume']}/axr"
    assert seen["RUNPOD_EMULATED_VOLUME"] == state["volume"]
    assert (seen["RUNPOD_POD_ID"], seen["RUNPOD_API_KEY"]) == (pod, state["key"])
    assert (seen["RUNPOD_DC_ID"], seen["RUNPOD_GPU_COUNT"]) == ("US-KS-2", "1")
    assert len(seen["TMPDIR"]) < 30
    assert "SECRET_OF_THE_EMULATOR" not in seen


def test_terminate_ends_detached_grandchildren_too(one: Rig) -> None:
    """A session of its own does not save a process, nor does ignoring SIGTERM."""
    script = "trap '' TERM; setsid sh -c 'echo $$; exec sleep 60' & wait"
    pod = one.running(args='{"entrypoint": ["sh", "-c"], "cmd": ["%s"]}' % script)  # noqa: UP031
    until(lambda: one.cloud.lines(pod))
    grandchild = int(one.cloud.lines(pod)[0])
    (state,) = one.cloud.state["pods"]
    assert alive(grandchild)
    one.api.delete(f"/v2/pods/{pod}")
    assert not alive(grandchild)
    assert not alive(state["pid"])
    assert not Path(state["volume"]).exists()
    assert not Path("/tmp", f"rp-{pod}").exists()
    assert Path(state["log"]).read_text().splitlines()[-1] == f"container: {grandchild}"


def test_stop_ends_processes_and_keeps_the_volume(one: Rig) -> None:
    """A start then finds what was there."""
    args = "sh -c 'ls $V; touch $V/here; exec sleep 60'"
    pod = one.running(args=args, env={"V": "/workspace"}, mounts=VOLUME)
    (state,) = one.cloud.state["pods"]
    until(lambda: Path(state["volume"], "here").exists())
    one.api.post(f"/v2/pods/{pod}/action", json={"action": "stop"})
    assert not alive(state["pid"])
    one.api.post(f"/v2/pods/{pod}/action", json={"action": "start"})
    one.cloud.advance(1)
    until(lambda: one.cloud.lines(pod) == ["here"])


def test_a_pod_that_ends_itself_still_gets_its_answer(one: Rig) -> None:
    """204 to its own key first, the end of its processes a moment later."""
    script = (
        "import os, time, urllib.request as u; "
        "url = os.environ['API'] + '/pods/' + os.environ['RUNPOD_POD_ID']; "
        "key = 'Bearer ' + os.environ['RUNPOD_API_KEY']; "
        "r = u.Request(url, method='DELETE', headers={'Authorization': key, 'User-Agent': 'x'}); "
        "print(u.urlopen(r).status, flush=True); time.sleep(60)"
    )
    pod = one.running(args=f'{sys.executable} -c "{script}"', env={"API": one.cloud.url})
    (state,) = one.cloud.state["pods"] or one.cloud.state["ended"]
    until(lambda: one.cloud.lines(pod) == ["204"])
    until(lambda: not one.cloud.state["pods"])
    one.cloud.advance(0.2)
    until(lambda: not alive(state["pid"]))
    assert one.cloud.state["ended"][0]["reason"] == pod
    asked = [(each["method"], each["caller"]) for each in one.cloud.state["requests"]]
    assert asked == [("POST", "account"), ("DELETE", pod)]


def test_a_command_that_does_not_exist_is_a_restart_loop(one: Rig) -> None:
    """It still looks RUNNING, with an uptime of nothing."""
    pod = one.running(args="/no/such/thing")
    one.cloud.advance()
    one.cloud.advance(0.2)
    assert (one.pod(pod)["status"], one.pod(pod)["runtime"]["uptime"]) == ("RUNNING", 0)
    assert sum("does not start" in line for line in one.cloud.lines(pod, "system")) == 2


def test_no_pod_outlives_the_emulator() -> None:
    """At the end of the block, and its folders are gone with it."""
    with rig() as one:
        one.running()
        pid = one.cloud.state["pods"][0]["pid"]
        home = one.cloud.folders.home
    assert not alive(pid)
    assert not home.exists()


def test_a_process_of_its_own_ends_its_pods_on_sigterm(tmp_path: Path) -> None:
    """`python -m` says where it is, and leaves nothing."""
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.emulators.runpod", "--home", tmp_path, "--key", "k"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "AXR_EMULATED_IMAGE_ENV": '{"AXR_PYTHON": "python9"}'},
    )
    with server:
        assert server.stdout is not None
        origin = server.stdout.readline().strip().removesuffix("/v2")
        with plain_client(base_url=origin, headers={"Authorization": "Bearer k"}) as api:
            body = order(args="sh -c 'echo $AXR_PYTHON; exec sleep 60'")
            pod = api.post("/v2/pods", json=body).json()["id"]
            api.post("/_clock", json={"advance": 1})
            (state,) = api.get("/_state").json()["pods"]
            assert alive(state["pid"])
            assert api.post("/_faults", json={"nonsense": 1}).status_code == 400
        until(lambda: "container: python9" in Path(state["log"]).read_text())
        server.send_signal(signal.SIGTERM)
        assert server.wait(10) == 0
    assert not alive(state["pid"])
    assert list((tmp_path / "pods").iterdir()) == []
    assert (tmp_path / "logs" / f"{pod}.log").exists()


def test_pods_that_a_killed_emulator_left_are_ended_by_the_next(tmp_path: Path) -> None:
    """By their folders in the same home."""
    (tmp_path / "pods" / "abandoned1").mkdir(parents=True)
    left = subprocess.Popen(["sleep", "60"], env={"RUNPOD_POD_ID": "abandoned1"})
    with Emulator(home=tmp_path):
        assert left.wait(5) == -signal.SIGKILL
    assert tmp_path.exists()


@pytest.mark.parametrize(
    ("args", "command"),
    [
        ("", ["sleep", "infinity"]),
        ("bash -c 'a b' c", ["bash", "-c", "a b", "c"]),
        ('{"entrypoint": ["sh", "-c"], "cmd": ["x y"]}', ["sh", "-c", "x y"]),
        ('{"cmd": ["a"]}', ["a"]),
        ("{a,b}", ["{a,b}"]),
    ],
)
def test_forms_of_args(args: str, command: list[str]) -> None:
    """A shell-style string, or JSON."""
    assert command_of(args) == command


@pytest.mark.parametrize(
    ("value", "real"),
    [
        ("/workspace", "/real"),
        ("/workspace/a", "/real/a"),
        ("/workspaces", "/workspaces"),
        ("x=/workspace", "x=/workspace"),
    ],
)
def test_the_mount_path_is_mapped_at_the_start_of_a_value(value: str, real: str) -> None:
    """And nowhere else."""
    assert mapped(value, "/workspace", Path("/real")) == real


def test_images_may_be_one_environment_or_one_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both forms of AXR_EMULATED_IMAGE_ENV."""
    monkeypatch.setenv("AXR_EMULATED_IMAGE_ENV", '{"A": "1"}')
    assert default_images() == {"*": {"A": "1"}}
    monkeypatch.setenv("AXR_EMULATED_IMAGE_ENV", '{"img": {"A": "1"}}')
    assert default_images() == {"img": {"A": "1"}}
