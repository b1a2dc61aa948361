"""The sweep over emulated clouds: what it sees, what it ends, and what it never touches."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from prefect.states import Completed, Failed, Running

from blocks import clouds
from blocks.cloud import INSTALLATION, Cloud, Pod
from flows import sweep as sweep_flow
from tasks import notify, sighting, teardown
from tasks.sighting import list_everywhere
from tasks.sweeping import Judged, own_pods, sweep_pods
from tasks.whose_pods import VARIABLE
from tests.emulators.vast.testing import ASK
from tests.emulators.vast.testing import order as vast_body
from tests.integration.clouds import runpod_rig, vast_rig
from tests.integration.clouds.runpod_rig import NOW
from tests.prefect_stand_in import Server, stand_in

OURS = "this-installation"


class World:
    """Two emulated clouds, one Prefect server, and the time at the clouds."""

    def __init__(self, rigs: dict[str, Any], server: Server) -> None:
        self.rigs = rigs
        self.server = server
        self.told: list[str] = []

    @property
    def now(self) -> datetime:
        """What the sweep's clock says: the emulators' time. Vast's calls wait, so it goes ahead."""
        return datetime.fromtimestamp(
            max(rig.emulator.clock.now() for rig in self.rigs.values()), UTC
        )

    def advance(self, seconds: float) -> None:
        """Let time pass on all clouds."""
        for rig in self.rigs.values():
            rig.emulator.advance(seconds)

    def rent(self, cloud: str, run: str, **environment: str) -> Pod:
        """A pod that runs."""
        module = runpod_rig if cloud == "runpod" else vast_rig
        gpus = (module.A5000, module.RTX_3090, module.A40)
        order = module.order(run, gpus=gpus, environment={"AXR_RUN": run, **environment})
        pod: Pod = self.rigs[cloud].cloud.create(order)
        self.advance(1)
        return pod

    def sweep(self) -> list[Judged]:
        """One sweep, as its flow does it."""
        return sweep_pods(list_everywhere(), self.now)

    def ids(self, cloud: str) -> set[str]:
        """The pods that live there."""
        return {str(pod["id"]) for pod in self.rigs[cloud].pods}

    @property
    def table(self) -> str:
        """The table in the UI."""
        (artifact,) = self.server.artifacts
        assert artifact.key == "pods"
        return str(artifact.data)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[World]:
    """Accounts of both clouds, in an empty home."""
    monkeypatch.setenv("AXR_HOME", str(tmp_path))
    server = stand_in(monkeypatch)
    server.variables[VARIABLE] = OURS
    with ExitStack() as stack:
        rigs = {
            "runpod": stack.enter_context(runpod_rig.rented()),
            "vast": stack.enter_context(vast_rig.rented()),
        }
        made: dict[str, Cloud] = {name: rig.cloud for name, rig in rigs.items()}
        monkeypatch.setattr(clouds, "cloud", made.__getitem__)
        for module in (sighting, teardown):
            monkeypatch.setattr(module, "all_clouds", lambda: list(made.values()))
        monkeypatch.setattr("tasks.whose_pods.installation_id", lambda: OURS)
        monkeypatch.setattr(sighting, "installation_id", lambda: OURS)
        one = World(rigs, server)
        monkeypatch.setattr(teardown, "CHILD_STOPS_WITHIN", 0.0)
        monkeypatch.setattr(notify, "leave", lambda notice, **_: one.told.append(notice.body))
        yield one


def _strange_pod(world: World, cloud: str) -> str:
    """What the account's owner uses for other things."""
    if cloud == "runpod":
        gpu = {"id": runpod_rig.A5000, "count": 1}
        body = {"name": "my-own-pod", "image": "x", "gpu": gpu, "cloud": "SECURE"}
        return str(world.rigs[cloud].post("pods", body)["id"])
    with world.rigs[cloud].owner() as owner:
        answer = owner.put(f"asks/{ASK}/", json=vast_body(label="my-own-pod"))
        return str(answer.raise_for_status().json()["new_contract"])


BOTH = pytest.mark.parametrize("cloud", ["runpod", "vast"])


@BOTH
def test_only_our_own_pods_are_ever_ended(cloud: str, world: World) -> None:
    """Left alone: other names, names that are no run's, and those of another installation on the
    same account. Ended: a pod of ours whose run nobody knows, also one that says of no
    installation.
    """
    kept = {
        _strange_pod(world, cloud),
        world.rent(cloud, "not-a-run").id,
        world.rent(cloud, str(uuid4()), **{INSTALLATION: "another"}).id,
    }
    world.rent(cloud, str(uuid4()), **{INSTALLATION: OURS})
    world.rent(cloud, str(uuid4()))
    world.sweep()
    assert world.ids(cloud) == kept
    assert "of another installation" in world.table
    assert own_pods(list_everywhere()) == []  # they do not keep the sweep going


@BOTH
def test_the_run_decides_whose_pod_it_is(cloud: str, world: World) -> None:
    """A server that knows the run owns the pod, whatever id an installation had before."""
    run = world.server.add_run(Failed(), age=300, now=world.now)
    world.rent(cloud, run, **{INSTALLATION: "an-older-id"})
    world.sweep()
    assert world.ids(cloud) == set()


def test_a_cloud_that_can_not_be_listed_loses_nothing_and_stops_nobody(world: World) -> None:
    """H21: nothing there is called gone; the other cloud is swept; the sweep stays on."""
    over = world.server.add_run(Completed(), age=300, now=world.now)
    bill = {"cloud": "runpod", "created": NOW.isoformat(), "terminated": None, "price_per_hour": 1}
    world.server.update_flow_run_labels(
        next(iter(world.server.runs)), {"axr.pod.r1": json.dumps(bill)}
    )
    child = world.server.add_child(over, "train-1", Running(), age=500, now=world.now, pod="r1")
    world.rent("vast", over)
    rented = world.rent("runpod", over)
    world.rigs["runpod"].emulator.set(list_status=503)
    listing = list_everywhere()
    assert listing.seen == {"vast"}
    sweep_pods(listing, world.now)
    sweep_flow.crash_lost_children(listing, world.now)
    assert world.ids("vast") == set()
    assert rented.id in world.ids("runpod")
    assert world.server.state(child) != "Crashed"
    assert "runpod: its pods can't be listed now" in world.table
    assert sweep_flow.is_needed()


def test_children_of_lost_pods_crash_once_a_listing_confirms_it(world: World) -> None:
    """H23: the owner ended the pod in the console while the parent was away."""
    run = world.server.add_run(Running(), age=300, now=world.now)
    pod = world.rent("runpod", run)
    bill = {
        "cloud": "runpod",
        "created": pod.created.isoformat(),
        "terminated": None,
        "price_per_hour": 1,
    }
    world.server.read_flow_run(next(iter(world.server.runs))).labels[f"axr.pod.{pod.id}"] = (
        json.dumps(bill)
    )
    child = world.server.add_child(run, "train-1", Running(), age=100, now=world.now, pod=pod.id)
    world.advance(300)
    assert sweep_flow.crash_lost_children(list_everywhere(), world.now) == []
    world.rigs["runpod"].cloud.terminate(pod)
    assert sweep_flow.crash_lost_children(list_everywhere(), world.now) == [child]
    assert world.server.state(child) == "Crashed"


@BOTH
def test_what_a_teardown_could_not_end_is_ended_later(cloud: str, world: World) -> None:
    """H21, H22: the run is over, its pod and its report are not; each sweep tries again."""
    run = world.server.add_run(
        Failed(), age=300, now=world.now, outcome="crash", reason="a bug", task="x"
    )
    pod = world.rent(cloud, run)
    refused = {"runpod": "delete_status", "vast": "destroy_status"}[cloud]
    world.rigs[cloud].emulator.set(**{refused: 503})
    world.sweep()
    assert pod.id in world.ids(cloud)
    world.rigs[cloud].emulator.set(**{refused: None})
    world.sweep()
    assert world.ids(cloud) == set()
    assert any(run in str(path) for path in Path(sweep_flow.home().runs).glob("*/report.json"))


def _kept(world: World, cloud: str, **telemetry: Any) -> str:
    """A pod that somebody wanted to keep, after its run."""
    content = "base_model: x\nrunner: {one_shot: false, idle_minutes: 15, max_hours: 5}\n"
    run = world.server.add_run(
        Completed(), age=60, now=world.now, content=content, outcome="completed", keep_pod="yes"
    )
    world.rent(cloud, run)
    world.server.add_child(run, "publish-1", Completed(), age=0, now=world.now)
    told = {"axr.told.1.completed.": "yes"}
    world.server.update_flow_run_labels(UUID(run), told)
    world.rigs[cloud].emulator.set(**telemetry)
    return run


IDLE = {"gpu": 0, "gpu_memory": 0, "cpu": 1, "memory": 10}


@BOTH
def test_an_idle_pod_is_told_once_and_ended(cloud: str, world: World) -> None:
    """After half of idle_minutes, after all of them; with the table."""
    _kept(world, cloud, telemetry=IDLE)
    lived = 0
    while world.ids(cloud) and lived < 30:
        world.sweep()
        world.advance(60)
        lived += 1
    assert len(world.told) == 1
    assert "idle for 8 minutes" in world.told[0]
    assert "uptime" in world.told[0]
    assert 13 <= lived <= 17  # a look at Vast takes some seconds


@BOTH
def test_telemetry_that_is_missing_never_ends_a_pod_but_max_hours_does(
    cloud: str, world: World
) -> None:
    """Null is unknown, not zero."""
    _kept(world, cloud, telemetry_null=True)
    for _ in range(10):
        world.sweep()
        world.advance(120)
    assert world.told == []
    assert len(world.ids(cloud)) == 1
    assert "| unknown |" in world.table
    assert "| idle |" not in world.table
    world.advance(5 * 3600)
    world.sweep()
    assert world.ids(cloud) == set()


@BOTH
def test_terminate_after_is_enforced_from_outside(cloud: str, world: World) -> None:
    """H16: the cloud has no timer, the guard is dead; the run's parent is told how to end it."""
    content = "base_model: x\nrunner: {terminate_after: 600}\n"
    run = world.server.add_run(Running(), age=60, now=world.now, content=content)
    world.rent(cloud, run)
    world.server.add_child(run, "train-1", Running(), now=world.now, phase="training")
    world.sweep()
    assert "outcome" not in world.server.facts(run)
    world.advance(700)
    world.sweep()
    facts = world.server.facts(run)
    assert (facts["outcome"], facts["decided_by"]) == ("deadline", "sweep")
    assert "terminate_after: 600 s" in facts["reason"]


def test_one_pod_that_can_not_be_looked_at_keeps_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays in the table and keeps the sweep going."""
    first = world.server.add_run(Failed(), age=300, now=world.now)
    second = world.server.add_run(Failed(), age=300, now=world.now)
    kept, ended = world.rent("runpod", first), world.rent("runpod", second)
    real: Callable[[str], Any] = sighting.know

    def know(run: str) -> Any:
        if run == first:
            raise ZeroDivisionError
        return real(run)

    monkeypatch.setattr(sighting, "know", know)
    world.sweep()
    assert world.ids("runpod") == {kept.id}
    assert ended.id in world.table
    assert "could not be looked at" in world.table


def test_a_refused_key_keeps_no_pod_elsewhere_alive(world: World) -> None:
    """H21: 401 on a listing is unknown, so the teardown is not done; what can be ended is."""
    run = world.server.add_run(Running(), now=world.now)
    world.rent("vast", run)
    world.rigs["runpod"].emulator.set(list_status=401)
    with pytest.raises(teardown.TryAgain, match="runpod"):
        teardown.end_pods(run)
    assert world.ids("vast") == set()


@BOTH
def test_fast_forwarding_data_is_told_and_is_not_idle(cloud: str, world: World) -> None:
    """H38: a resumed trainer that reads and drops rows for hours at 0 % is left alone, people are
    told once what it does, and nobody is told that the pod is idle.
    """
    run = world.server.add_run(Running(), age=7200, now=world.now)
    pod = world.rent(cloud, run)
    world.server.add_child(
        run,
        "train-2",
        Running(),
        age=7000,
        now=world.now,
        phase="forwarding",
        phase_at=world.now.timestamp() - 7000,
        step=500,
        planned_steps=900,
    )
    for _ in range(30):
        world.advance(60)
        world.sweep()
    assert pod.id in world.ids(cloud)
    assert "fast-forwarding | 500/900 |" in world.table
    [said] = world.told
    assert "fast-forwarding data" in said
    assert "first 500 steps" in said
    assert "the pod is not idle" in said
