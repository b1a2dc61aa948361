"""What a pod may ask and tell: the whole list, and what is refused."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from deployments.gateway.frames import (
    is_filter,
    judge_event,
    judge_hello,
    judge_worker_frame,
    told_of,
)
from deployments.gateway.rules import Allowed, Own, Refused, is_plain, judge
from runner.tokens import Token

RUN, OTHER, ID = str(uuid4()), str(uuid4()), str(uuid4())
TOKEN = Token("pod", RUN, 2**31)
QUEUE = {"name": {"any_": [f"axr-{RUN}"]}}
POOL = "/work_pools/pods"

ALLOWED: list[tuple[str, str, Any, tuple[Own, ...]]] = [
    ("GET", "/health", None, ()),
    ("GET", "/admin/version", None, ()),
    ("GET", "/admin/storage", None, ()),
    ("GET", "/csrf-token", None, ()),
    ("GET", f"/flow_runs/{ID}", None, (Own("flow_run", ID),)),
    ("GET", f"/flow_runs/{RUN}", None, ()),
    ("GET", f"/deployments/{ID}", None, (Own("deployment", ID),)),
    ("GET", f"/flows/{ID}", None, (Own("flow", ID),)),
    ("GET", f"/work_queues/{ID}", None, (Own("work_queue", ID),)),
    ("GET", POOL, None, ()),
    ("PATCH", f"/flow_runs/{ID}", {"name": "x", "tags": [f"run:{RUN}"]}, (Own("flow_run", ID),)),
    ("PATCH", f"/flow_runs/{ID}", {"infrastructure_pid": "7"}, (Own("flow_run", ID),)),
    ("PATCH", f"/flow_runs/{ID}/labels", {"axr.facts": "{}"}, (Own("flow_run", ID),)),
    (
        "POST",
        f"/flow_runs/{ID}/set_state",
        {"state": {"type": "RUNNING"}, "force": True},
        (Own("flow_run", ID),),
    ),
    ("POST", "/logs/", [{"flow_run_id": ID}, {"flow_run_id": ID}], (Own("flow_run", ID),)),
    (
        "POST",
        "/logs/",
        [{"flow_run_id": ID, "task_run_id": OTHER}],
        (Own("flow_run", ID), Own("task_run", OTHER)),
    ),
    ("POST", "/artifacts/", {"key": f"progress-{RUN}", "flow_run_id": None}, ()),
    ("POST", "/artifacts/", {"flow_run_id": ID}, (Own("flow_run", ID),)),
    ("PATCH", f"/artifacts/{ID}", {"data": 3.0, "description": "x"}, (Own("artifact", ID),)),
    ("POST", f"{POOL}/get_scheduled_flow_runs", {"work_queue_names": [f"axr-{RUN}"]}, ()),
    ("POST", f"{POOL}/queues/filter", {"work_queues": QUEUE, "limit": 5}, ()),
    ("POST", f"{POOL}/queues/filter", {"work_queues": {**QUEUE, "id": None}}, ()),
    ("POST", f"{POOL}/workers/heartbeat", {"name": f"pod-{RUN}"}, ()),
    ("POST", "/flow_runs/filter", {"flow_runs": {"id": {"any_": [ID]}}}, ()),
    ("POST", "/flow_runs/filter", {"work_pool_queues": QUEUE}, ()),
]

REFUSED: list[tuple[str, str, Any]] = [
    # another queue, all queues, another worker, another pool
    ("POST", f"{POOL}/get_scheduled_flow_runs", {"work_queue_names": [f"axr-{OTHER}"]}),
    ("POST", f"{POOL}/get_scheduled_flow_runs", {"work_queue_names": [f"axr-{RUN}", "default"]}),
    ("POST", f"{POOL}/get_scheduled_flow_runs", {"work_queue_names": []}),
    ("POST", f"{POOL}/get_scheduled_flow_runs", {"work_queue_names": f"axr-{RUN}"}),
    ("POST", f"{POOL}/get_scheduled_flow_runs", {}),
    ("POST", f"{POOL}/get_scheduled_flow_runs", None),
    ("POST", f"{POOL}/queues/filter", {}),
    ("POST", f"{POOL}/queues/filter", {"work_queues": {"id": {"any_": [ID]}}}),
    ("POST", f"{POOL}/queues/filter", {"work_queues": {**QUEUE, "operator": "or_", "id": {}}}),
    ("POST", f"{POOL}/queues/filter", {"work_queues": {"name": {"startswith_": ["axr-"]}}}),
    ("POST", f"{POOL}/workers/heartbeat", {"name": f"pod-{OTHER}"}),
    ("POST", f"{POOL}/workers/filter", {}),
    ("GET", f"{POOL}/queues/axr-{RUN}", None),
    ("PATCH", f"{POOL}/queues/axr-{RUN}", {"is_paused": True}),
    ("POST", f"{POOL}/queues", {"name": "x"}),
    ("PATCH", POOL, {"base_job_template": {}}),
    ("DELETE", POOL, None),
    ("GET", "/work_pools/control", None),
    ("POST", "/work_pools/control/get_scheduled_flow_runs", {"work_queue_names": [f"axr-{RUN}"]}),
    ("POST", "/work_pools/filter", {}),
    ("POST", "/work_pools/", {}),
    # the run's own flow runs, but not these fields, tags and verbs
    ("PATCH", f"/flow_runs/{ID}", {"job_variables": {"command": "x"}}),
    ("PATCH", f"/flow_runs/{ID}", {"parameters": {}}),
    ("PATCH", f"/flow_runs/{ID}", {"name": "x", "work_queue_name": "runs"}),
    ("PATCH", f"/flow_runs/{ID}", {"tags": [f"run:{OTHER}"]}),
    ("PATCH", f"/flow_runs/{ID}", []),
    ("POST", f"/flow_runs/{ID}/set_state", {"state": {}, "more": 1}),
    ("POST", f"/flow_runs/{ID}/resume", {}),
    ("POST", f"/flow_runs/{ID}/input", {}),
    ("DELETE", f"/flow_runs/{ID}", None),
    ("HEAD", f"/flow_runs/{ID}", None),
    ("GET", f"/flow_runs/{ID}/", None),
    ("GET", f"/flow_runs/{ID.upper()}", None),
    ("GET", f"/flow_runs/{ID.replace('-', '')}", None),
    ("GET", f"/flow_runs/{ID}/graph", None),
    # creating and finding things
    ("POST", "/flow_runs/", {}),
    ("POST", "/flow_runs/count", {}),
    ("POST", "/flow_runs/paginate", {}),
    ("POST", "/flow_runs/bulk_set_state", {}),
    ("POST", "/flow_runs/filter", {"work_pool_queues": {"name": {"any_": ["runs"]}}}),
    ("POST", "/flow_runs/filter", {"work_pool_queues": {"id": {"any_": [ID]}}}),
    ("POST", "/flow_runs/filter", {"work_pools": {"name": {"any_": ["control"]}}}),
    ("POST", "/flow_runs/filter", [1]),
    ("POST", f"/deployments/{ID}/create_flow_run", {}),
    ("GET", "/deployments/name/finetune/finetune", None),
    ("POST", "/deployments/filter", {}),
    ("PATCH", f"/deployments/{ID}", {}),
    ("POST", "/deployments/", {}),
    ("POST", "/flows/", {"name": "x"}),
    ("POST", "/task_runs/filter", {}),
    ("GET", f"/task_runs/{ID}", None),
    ("POST", "/task_runs/", {}),
    # what holds secrets or starts things
    ("GET", f"/block_documents/{ID}", None),
    ("POST", "/block_documents/filter", {"include_secrets": True}),
    ("GET", "/block_types/slug/secret/block_documents/name/x", None),
    ("POST", "/automations/", {}),
    ("POST", "/automations/filter", {}),
    ("POST", "/variables/", {}),
    ("GET", "/variables/name/x", None),
    ("POST", "/variables/filter", {}),
    ("GET", "/admin/settings", None),
    ("POST", "/admin/database/clear", {}),
    ("POST", "/events", []),
    ("POST", "/events/filter", {}),
    ("POST", "/concurrency_limits/", {}),
    ("POST", "/templates/validate", "x"),
    ("POST", "/logs/filter", {}),
    ("POST", "/artifacts/filter", {}),
    ("GET", f"/artifacts/{ID}", None),
    ("GET", f"/artifacts/progress-{OTHER}/latest", None),
    ("DELETE", f"/artifacts/{ID}", None),
    # logs and artifacts of nobody or of another run
    ("POST", "/logs/", [{"flow_run_id": ID}, {"message": "of no run"}]),
    ("POST", "/logs/", [{"flow_run_id": None}]),
    ("POST", "/logs/", {"flow_run_id": ID}),
    ("POST", "/logs/", ["x"]),
    ("POST", "/logs", [{"flow_run_id": ID}]),
    ("POST", "/artifacts/", {"key": f"progress-{OTHER}"}),
    ("POST", "/artifacts/", {"key": f"progress-{OTHER}", "flow_run_id": ID}),
    ("POST", "/artifacts/", {"data": 1}),
    ("PATCH", f"/artifacts/{ID}", {"flow_run_id": OTHER}),
    ("GET", "/", None),
    ("GET", "", None),
]


@pytest.mark.parametrize(("method", "path", "body", "own"), ALLOWED)
def test_a_pod_may_ask_for_what_it_needs(
    method: str, path: str, body: Any, own: tuple[Own, ...]
) -> None:
    """Each with the look-ups that prove whose it is."""
    verdict = judge(TOKEN, method, path, "", body)
    assert isinstance(verdict, Allowed), verdict
    assert verdict.own == own


@pytest.mark.parametrize(("method", "path", "body"), REFUSED)
def test_a_pod_may_not_ask_for_more(method: str, path: str, body: Any) -> None:
    """Refused with a reason, before anything is looked up."""
    verdict = judge(TOKEN, method, path, "", body)
    assert isinstance(verdict, Refused), verdict
    assert verdict.reason


def test_a_push_token_opens_nothing_of_the_api() -> None:
    """Not even its health."""
    assert isinstance(judge(Token("push", "me/x", 2**31), "GET", "/health", "", None), Refused)


def test_only_the_csrf_token_has_a_query() -> None:
    """No parameter of a query is ever judged, so none goes through."""
    assert isinstance(judge(TOKEN, "GET", "/csrf-token", "client=x", None), Allowed)
    assert isinstance(judge(TOKEN, "GET", f"/flow_runs/{ID}", "x=1", None), Refused)


def test_a_question_for_flow_runs_is_narrowed_to_the_own_queue() -> None:
    """The pod's own filter stays; queue and pool are set whatever it says."""
    asked = {"flow_runs": {"tags": {"all_": ["x"]}}, "limit": 3, "work_pools": None}
    verdict = judge(TOKEN, "POST", "/flow_runs/filter", "", asked)
    assert isinstance(verdict, Allowed)
    assert verdict.answer == "own runs only"
    assert verdict.body == {
        "flow_runs": {"tags": {"all_": ["x"]}},
        "limit": 3,
        "work_pool_queues": QUEUE,
        "work_pools": {"name": {"any_": ["pods"]}},
    }


@pytest.mark.parametrize(
    "path",
    [
        b"/api/flow_runs/../block_documents/",
        b"/api/flow_runs/./x",
        b"/api/..",
        b"/api/%2e%2e/x",
        b"/api/flow_runs/%2F..%2fx",
        b"/api/flow%5fruns/x",
        b"/api//flow_runs",
        b"//api/health",
        b"/api/flow_runs\\..\\x",
        b"/api/health\0",
        b"/api/health%00",
        b"/api/health;x",
        b"/api/health#x",
        b"/api/health\n",
        "/api/flow_runs/\N{FULLWIDTH FULL STOP}".encode(),
        b"http://elsewhere/api/health",
        b"",
    ],
)
def test_a_path_that_could_be_read_in_two_ways_is_none(path: bytes) -> None:
    """Nothing needs escapes, dots or doubled strokes, so all of them are refused."""
    assert not is_plain(path)


def test_the_paths_that_clients_use_are_plain() -> None:
    """Also those that end with a stroke."""
    assert is_plain(b"/api/logs/")
    assert is_plain(f"/api/work_pools/pods/queues/axr-{RUN}".encode())


def _event(name: str, resource: str, *related: str, **payload: Any) -> dict[str, Any]:
    return {
        "event": name,
        "resource": {"prefect.resource.id": resource},
        "related": [{"prefect.resource.id": one, "prefect.resource.role": "x"} for one in related],
        "payload": payload,
    }


FLOW_RUN = f"prefect.flow-run.{ID}"
TASK_RUN = f"prefect.task-run.{OTHER}"


@pytest.mark.parametrize(
    ("event", "own"),
    [
        (_event("prefect.flow-run.heartbeat", FLOW_RUN), [Own("flow_run", ID)]),
        (
            _event("prefect.task-run.Running", TASK_RUN, FLOW_RUN, task_run={"name": "x"}),
            [Own("task_run", OTHER), Own("flow_run", ID)],
        ),
        (
            _event("prefect.artifact.created", f"prefect.artifact.{OTHER}", FLOW_RUN),
            [Own("artifact", OTHER), Own("flow_run", ID)],
        ),
        (_event("prefect.worker.started", f"prefect.worker.process.pod-{RUN}"), []),
        (
            _event("prefect.worker.executed-flow-run", f"prefect.worker.x.pod-{RUN}", FLOW_RUN),
            [Own("flow_run", ID)],
        ),
        (_event("axolotl.run.noted", f"axolotl.run.{RUN}", f"prefect.tag.run:{RUN}"), []),
        (
            _event("prefect.flow-run.x", FLOW_RUN, f"prefect.deployment.{OTHER}"),
            [Own("flow_run", ID), Own("deployment", OTHER)],
        ),
    ],
)
def test_a_pod_tells_of_its_own(event: dict[str, Any], own: list[Own]) -> None:
    """With the look-ups that prove it."""
    verdict = judge_event(TOKEN, event)
    assert isinstance(verdict, Allowed), verdict
    assert list(verdict.own) == own


@pytest.mark.parametrize(
    "event",
    [
        _event("axolotl.config.pushed", "github.repository.me/x", FLOW_RUN),
        _event("axolotl.run.noted", f"axolotl.run.{OTHER}"),
        _event("prefect.flow-run.x", "github.repository.me/x", FLOW_RUN),
        _event("prefect.flow-run.x", "prefect.flow-run.*"),
        _event("prefect.task-run.Running", TASK_RUN),
        _event("prefect.task-run.Running", TASK_RUN, FLOW_RUN, task_run={"flow_run_id": OTHER}),
        _event("prefect.task-run.Running", TASK_RUN, FLOW_RUN, task_run={"id": ID}),
        _event("prefect.worker.started", f"prefect.worker.process.pod-{OTHER}"),
        _event("prefect.worker.started", f"prefect.worker.process.pod-{OTHER}", FLOW_RUN),
        _event("prefect.flow-run.x", FLOW_RUN, f"prefect.tag.run:{OTHER}"),
        _event("prefect.work-pool.updated", "prefect.work-pool.x", FLOW_RUN),
        _event("prefect.automation.x", "prefect.automation.x", FLOW_RUN),
        {
            "event": "prefect.flow-run.x",
            "resource": {"prefect.resource.id": FLOW_RUN},
            "related": 1,
        },
        {"event": "prefect.flow-run.x", "resource": FLOW_RUN},
        {"event": "prefect.flow-run.x"},
        {},
        [],
        None,
    ],
)
def test_a_pod_does_not_tell_of_others(event: Any) -> None:
    """Neither in their name nor about nothing of its own."""
    assert isinstance(judge_event(TOKEN, event), Refused)


def test_a_frame_is_for_the_pods_whose_flow_runs_it_names() -> None:
    """A frame about none is for nobody, one about two needs both."""
    event = _event("prefect.flow-run.Cancelling", FLOW_RUN, f"prefect.flow-run.{OTHER}")
    assert told_of({"type": "event", "event": event}) == (
        Own("flow_run", ID),
        Own("flow_run", OTHER),
    )
    assert told_of({"type": "event", "event": _event("x", "y")}) == ()
    assert told_of({"type": "event", "event": _event("x", "prefect.flow-run.y")}) == ()
    assert told_of({"type": "event"}) == ()
    assert told_of(7) == ()


def test_only_a_filter_goes_up_on_the_line_of_events() -> None:
    """Whatever it filters, each frame down is looked at."""
    assert is_filter({"type": "filter", "filter": {}})
    assert not is_filter({"type": "auth"})
    assert not is_filter([])


def _hello(**payload: Any) -> dict[str, Any]:
    own = {"worker_name": f"pod-{RUN}", "work_queue_names": [f"axr-{RUN}"], "consumer_id": ID}
    return {"type": "worker.hello.v1", "id": ID, "payload": own | payload}


def test_a_worker_says_hello_without_touching_the_pools_job_template() -> None:
    """The template is the command that every pod runs."""
    template = {"job_configuration": {"command": "curl evil"}}
    hello = _hello(create_pool_if_not_found=True, default_base_job_template=template)
    verdict = judge_hello(TOKEN, hello)
    assert isinstance(verdict, Allowed)
    assert verdict.body["payload"]["default_base_job_template"] == {}
    assert verdict.body["payload"]["create_pool_if_not_found"] is False
    assert verdict.body["payload"]["consumer_id"] == ID


@pytest.mark.parametrize(
    "hello",
    [
        _hello(worker_name=f"pod-{OTHER}"),
        _hello(work_queue_names=[f"axr-{OTHER}"]),
        _hello(work_queue_names=[]),
        {"type": "worker.hello.v1"},
        {"type": "worker.heartbeat.v1", "payload": _hello()["payload"]},
        None,
    ],
)
def test_another_worker_is_not_let_in(hello: Any) -> None:
    """Without queues the server takes it for all of them."""
    assert isinstance(judge_hello(TOKEN, hello), Refused)


def test_after_hello_only_a_workers_own_frames() -> None:
    """A second hello would ask for other queues."""
    beat = {"type": "worker.heartbeat.v1", "payload": {"worker_name": f"pod-{RUN}"}}
    assert isinstance(judge_worker_frame(TOKEN, beat), Allowed)
    assert isinstance(judge_worker_frame(TOKEN, {"type": "cleanup.ack.v1", "payload": {}}), Allowed)
    beat["payload"] = {"worker_name": f"pod-{OTHER}"}
    assert isinstance(judge_worker_frame(TOKEN, beat), Refused)
    assert isinstance(judge_worker_frame(TOKEN, _hello()), Refused)
    assert isinstance(judge_worker_frame(TOKEN, {"type": "work_pool.snapshot.v1"}), Refused)
