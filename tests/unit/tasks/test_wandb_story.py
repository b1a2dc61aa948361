"""What the control side says to W&B, without W&B: the feed, and when its writer is started."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from prefect.client.schemas.objects import FlowRun

from runner import wandb_open
from runner.home import home
from runner.taskfile import parse_task_file
from runner.wandb_feed import Feed, State
from tasks import wandb_story
from tasks.ordering import pod_environment
from tasks.run import Order, Run
from tasks.trainer import GRACE
from tasks.wandb_story import alert, end_story, phase, track, wandb_facts, with_cost

RUN = Run("0bd1c5a4-6f4e-4d53-9c0b-2f6f5b1c9a77", "configs/t.yml", "abc", datetime.now(UTC))
CHILD = FlowRun(id=uuid4(), flow_id=uuid4(), name="train-1")
TOY = "base_model: x\nwandb_project: toy\nwandb_run_id: toy1\n"


def _order(text: str = TOY) -> Order:
    return Order(parse_task_file(text, "t.yml"), ("local",))


@pytest.fixture(autouse=True)
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Feed]:
    """A control side without a key; the writers that it has started."""
    found: list[Feed] = []
    monkeypatch.setenv("AXR_HOME", str(tmp_path))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setattr(wandb_story, "recall", lambda run: {"began": RUN.began.isoformat()})
    monkeypatch.setattr(wandb_story, "_start_writer", lambda feed, _: found.append(feed))
    yield found
    wandb_story._stop_passing_on()


def _said(kind: str) -> list[dict[str, Any]]:
    return [said for said, _ in Feed(RUN.folder).unread(0) if said["kind"] == kind]


def _lines() -> str:
    return "\n".join(said["text"] for said in _said("line"))


def test_without_wandb_in_the_task_file_nothing_happens(
    started: list[Feed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file, no process, and wandb on the pod is off, whatever keys there are."""
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    order = _order("base_model: x\n")
    track.fn(RUN, order)
    phase(RUN.id, "provision", 3.0)
    alert(RUN, "spike", "it jumped")
    end_story(RUN, "crash", "why", "log", {})
    assert started == []
    assert wandb_facts(RUN) is None
    assert not (home().runs / RUN.id / "story").exists()
    assert pod_environment(RUN, order, "local")["WANDB_MODE"] == "disabled"


def test_without_a_key_it_is_offline_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """H45: with what to do afterwards; the pod's wandb is told the same. H43: no old id."""
    for _ in range(2):
        track.fn(RUN, _order())
    said = [record.message for record in caplog.records]
    assert len([line for line in said if "wandb sync" in line]) == 1
    assert len([line for line in said if "wandb_run_id is a name only" in line]) == 1
    environment = pod_environment(RUN, _order(), "local")
    assert environment["WANDB_MODE"] == "offline"
    assert environment["WANDB_RUN_ID"] == f"axr-{RUN.id}"
    found = wandb_facts(RUN)
    assert found is not None
    assert (found.id, found.url) == (f"axr-{RUN.id}", None)
    assert found.sync is not None
    assert found.sync.startswith(f"wandb sync --id axr-{RUN.id} ")


@pytest.mark.parametrize("cloud", ["runpod", "vast"])
def test_a_task_file_s_env_can_t_lead_the_pod_to_another_run(
    cloud: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both sides follow the same rules; a mode in `env` is one of them."""
    monkeypatch.setenv("AXR_GATEWAY_URL", "https://gateway.example.org")
    monkeypatch.setattr("tasks.ordering.installation_id", lambda: "here")
    text = TOY + "runner: {env: {WANDB_RUN_ID: mine, WANDB_MODE: offline, WANDB_API_KEY: k}}\n"
    environment = pod_environment(RUN, _order(text), cloud)
    assert environment["WANDB_RUN_ID"] == f"axr-{RUN.id}"
    assert environment["WANDB_MODE"] == "offline"


def test_the_log_of_the_parent_goes_along_until_the_end() -> None:
    """Nothing after the end, which would open the run in W&B again."""
    track.fn(RUN, _order())
    logging.getLogger("axolotl_runner").warning("no room on %s", "runpod")
    phase(RUN.id, "provision", 3.0)
    end_story(RUN, "no_capacity", "none has a pod", "last words\nof it", {"runner/attempts": 0})
    logging.getLogger("axolotl_runner").warning("Finished")
    for line in ("WARNING: no room on runpod", "last words", "no_capacity: none has a pod"):
        assert line in _lines()
    assert "Finished" not in _lines()
    assert Feed(RUN.folder).has_ended
    (end,) = _said("end")
    assert (end["exit_code"], end["summary"]) == (1, {"runner/attempts": 0})
    rows = [said["values"] for said in _said("row")]
    assert rows[-1]["runner/seconds/provision"] == 3.0
    assert all({"runner/hours", "runner/cost_usd"} <= row.keys() for row in rows)


def test_what_is_told_again_by_a_revived_parent_is_said_once() -> None:
    """Alerts by (kind, attempt), the end until a resume; a completed run has exit code 0."""
    track.fn(RUN, _order())
    for _ in range(2):
        alert(RUN, "spike", "it jumped", 1)
        alert(RUN, "started", "not an alert")
    alert(RUN, "spike", "and again", 2)
    for _ in range(2):
        end_story(RUN, "completed", "done", "", {})
    assert [said["text"] for said in _said("alert")] == ["it jumped", "and again"]
    assert [said["exit_code"] for said in _said("end")] == [0]


def test_a_wandb_that_is_silent_or_in_trouble_is_one_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H31: the report does not wait for it."""
    monkeypatch.setattr(wandb_story, "SENT_WITHIN", 0.0)
    track.fn(RUN, _order())
    caplog.clear()
    end_story(RUN, "completed", "done", "", {})
    feed = Feed(RUN.folder)
    feed.note(State(done=feed.lines.stat().st_size, mode="offline", trouble="CommError: 409"))
    end_story(RUN, "completed", "done", "", {})
    said = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert said == [
        "W&B has not got everything within 0 s; it is left to it",
        "W&B: CommError: 409",
    ]


def test_a_child_s_log_that_can_t_be_read_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server may be away just then."""

    class Away:
        def read_logs(self, *_: Any, **__: Any) -> None:
            raise httpx.ConnectError("refused")

    monkeypatch.setattr(wandb_story, "api", Away)
    track.fn(RUN, _order())
    wandb_story.tell_child(RUN.id, CHILD)
    assert not Feed(RUN.folder).has_child(str(CHILD.id)), "it may be told later"


def test_a_step_on_the_pod_is_told_once_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lines oldest first; a revived parent that finds it ended says nothing again."""
    told = ("Finished in state LossSpike('up\n{facts}')", "a failure\nits stack", "line 1")
    said = [SimpleNamespace(message=text) for text in told]

    class Server:
        def read_logs(self, *_: Any, **__: Any) -> list[SimpleNamespace]:
            return said

        def read_flow_run(self, _: UUID) -> SimpleNamespace:
            began = datetime.now(UTC)
            return SimpleNamespace(start_time=began, end_time=began + timedelta(seconds=40))

    monkeypatch.setattr(wandb_story, "api", Server)
    track.fn(RUN, _order())
    for _ in range(2):
        wandb_story.tell_child(RUN.id, CHILD)
    lines = [line for line in _lines().splitlines() if line.startswith("train-1: ")]
    last = "train-1: Finished in state LossSpike('up"
    assert lines == ["train-1: line 1", "train-1: a failure", last]
    assert "its stack" in _lines()
    assert "{facts}" not in _lines()
    assert _said("row")[-1]["values"]["runner/seconds/train attempt 1"] == 40.0


def test_the_cost_is_a_row_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a step works; what is wrapped is called each time."""
    now = [0.0]
    monkeypatch.setattr(wandb_story.time, "monotonic", lambda: now[0])
    track.fn(RUN, _order())
    before = len(_said("row"))
    looks: list[float] = []
    look = with_cost(RUN.id, lambda: looks.append(now[0]))
    for now[0] in (1.0, 59.0, 61.0, 62.0, 122.0):
        look()
    assert len(looks) == 5
    assert len(_said("row")) == before + 2


def test_the_limits_fit_into_the_graces_around_them() -> None:
    """H31: after its last word the trainer has so long until it is ended."""
    assert wandb_open.LEAVES_WITHIN < GRACE
    assert wandb_open.OPENS_WITHIN < wandb_open.GIVES_UP_WITHIN
