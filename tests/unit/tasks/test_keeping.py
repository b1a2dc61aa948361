"""What is said of a pod that is kept for debugging."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from blocks.cloud import Pod, PodPhase, PodStatus
from runner.errors import PodLost, TryAgain
from runner.taskfile import parse_task_file
from tasks import keeping
from tasks.keeping import KEPT, kept_words
from tasks.run import Order, Run

BEGAN = datetime(2026, 1, 1, 8, tzinfo=UTC)
RUN = Run("c0ffee", "x.yml", None, BEGAN)
POD = Pod("p1", "axr-c0ffee", "runpod", BEGAN, 0.39)


def said(
    monkeypatch: pytest.MonkeyPatch, *, cloud: str = "runpod", ssh: Any = None, gone: bool = False
) -> str:
    """The words about one pod; `ssh` is what its cloud says, or raises."""

    def status(pod: Pod) -> PodStatus:
        if isinstance(ssh, Exception):
            raise ssh
        return PodStatus(PodPhase.RUNNING, ssh=ssh)

    def facts(name: str, ended: bool) -> str:
        at = BEGAN.isoformat()
        bill = {"cloud": name, "created": at, "terminated": at if ended else None}
        return json.dumps({**bill, "price_per_hour": 0.39})

    known = {"pod.p0": facts(cloud, True), "pod.p1": facts(cloud, gone)}
    text = "base_model: x\nrunner: {one_shot: false, idle_minutes: 30, max_hours: 10}\n"
    order = Order(parse_task_file(text, "x.yml"), (cloud,))
    there = SimpleNamespace(find=lambda run: POD, status=status)
    monkeypatch.setattr(keeping, "recall", lambda run: known)
    monkeypatch.setattr(keeping, "open_order", lambda run: order)
    monkeypatch.setattr(keeping, "cloud", lambda name: there)
    monkeypatch.setattr(keeping, "log", lambda: SimpleNamespace(warning=lambda *args: None))
    monkeypatch.setattr(Run, "folder", property(lambda run: Path("/home/runs/c0ffee")))
    return kept_words(RUN)


def test_a_kept_pod_is_named_with_its_price_its_end_and_a_line_to_paste(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the living one."""
    assert said(monkeypatch, ssh="ssh p1@ssh.runpod.io -p 22") == (
        f"the pod p1 on runpod {KEPT} for $0.39 per hour, until it was idle for 30 minutes or "
        "2026-01-01 18:00 UTC: ssh p1@ssh.runpod.io -p 22"
    )


def test_a_pod_of_this_machine_is_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs nothing."""
    words = said(monkeypatch, cloud="local")
    assert words.endswith("or 2026-01-01 18:00 UTC: cd /home/runs/c0ffee")
    assert "$" not in words


@pytest.mark.parametrize(
    ("ssh", "words"),
    [
        (None, "runpod shows no way in by ssh"),
        (TryAgain("busy"), "how to reach it is not known now (busy)"),
        (PodLost("gone"), "how to reach it is not known now (gone)"),
    ],
)
def test_what_is_not_known_is_said_and_fails_nothing(
    monkeypatch: pytest.MonkeyPatch, ssh: Any, words: str
) -> None:
    """The end of a run goes on."""
    assert said(monkeypatch, ssh=ssh).endswith(words)


def test_where_no_pod_is_left_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have been lost meanwhile."""
    assert said(monkeypatch, gone=True) == ""
