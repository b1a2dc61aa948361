"""Whatever dies in mid-training, the run completes: one pod, one trainer, no step twice."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import Side, longer

pytestmark = pytest.mark.e2e


def _parent(side: Side, run: str) -> list[int]:
    return [side.parent(run)]


def _worker(side: Side, run: str) -> list[int]:
    return [side.control_process("worker-runs")]


def _server(side: Side, run: str) -> list[int]:
    return [side.control_process("server")]


def _pod_worker(side: Side, run: str) -> list[int]:
    return side.pod_processes(run, "worker start")


def _train_flow(side: Side, run: str) -> list[int]:
    return side.pod_processes(run, "prefect.engine")


def _pod_worker_and_flow(side: Side, run: str) -> list[int]:
    return _pod_worker(side, run) + _train_flow(side, run)


KILLS: dict[str, tuple[Callable[[Side, str], list[int]], signal.Signals]] = {
    "the parent": (_parent, signal.SIGKILL),
    "the control worker": (_worker, signal.SIGKILL),
    "the control worker, told to stop": (_worker, signal.SIGTERM),
    "the pod's worker": (_pod_worker, signal.SIGKILL),
    "the train flow": (_train_flow, signal.SIGKILL),
    "the pod's worker and the train flow": (_pod_worker_and_flow, signal.SIGKILL),
    "the Prefect server": (_server, signal.SIGTERM),
}


# About a minute each: one for `make test`, the rest is for `make e2e`.
ALWAYS = ("the parent",)


@pytest.mark.parametrize(
    "who", [who if who in ALWAYS else pytest.param(who, marks=pytest.mark.chaos) for who in KILLS]
)
def test_a_run_survives_the_death_of(who: str, side: Side, tmp_path: Path) -> None:
    """The trainer does not notice, and the follower or parent that died comes back to it."""
    victims, number = KILLS[who]
    run = side.start(longer(tmp_path))
    side.wait_for_step(run, 20)
    pids = victims(side, run)
    assert pids, f"{who} is not there to be killed"
    for pid in pids:
        os.kill(pid, number)

    report = side.report(run)

    assert report["state"] == "completed", report["reason"]
    assert report["final_step"] == report["planned_steps"] == 200
    assert [step for step, _ in side.steps(run)] == list(range(1, 201)), (
        "no step twice, none left out"
    )
    assert len(side.events(run, "armed")) == 1, "one trainer process"
    assert len(report["attempts"]) == 1
    assert len(report["pods"]) == 1
    assert report["pods"][0]["terminated"], "the pod was given back"
    assert side.cli("pods", "--json").stdout.strip() == "[]"
