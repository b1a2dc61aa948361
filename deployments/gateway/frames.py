"""What a pod may say and hear on the three sockets. Pure functions, as `rules` for requests.

events/in     what the pod tells: of its own flow runs, task runs, artifacts and worker only
events/out    what it hears: clients ask by event name for all runs, so each frame is looked at
workers/connect  the worker's line: name and queue are the pod's own, or it is closed
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from deployments.gateway.rules import Allowed, Kind, NotAllowed, Own, Refused, fields, own
from runner.tokens import Token

# An event's name → what its resource must be: nobody announces one thing in another's name.
SPOKEN_OF = {
    "prefect.flow-run.": "prefect.flow-run.",
    "prefect.task-run.": "prefect.task-run.",
    "prefect.artifact.": "prefect.artifact.",
    "prefect.worker.": "prefect.worker.",
    "prefect.runner.": "prefect.runner.",
    "axolotl.run.": "axolotl.run.",
}
OWNED: dict[str, Kind] = {
    "prefect.flow-run.": "flow_run",
    "prefect.task-run.": "task_run",
    "prefect.artifact.": "artifact",
    "prefect.deployment.": "deployment",
    "prefect.flow.": "flow",
    "prefect.work-queue.": "work_queue",
}
WORKER_FRAMES = {"worker.heartbeat.v1", "cleanup.ack.v1", "cleanup.release.v1", "cleanup.renew.v1"}
# The server writes what `payload.task_run` says over what it knows of the task run.
TASK_RUN_IDENTITY = {"id", "flow_run_id", "state", "state_id"}


def judge_event(token: Token, event: object) -> Allowed | Refused:
    """The verdict on an event that the pod tells."""
    try:
        return Allowed(tuple(dict.fromkeys(_judge_event(token, fields(event)))), event)
    except NotAllowed as no:
        return Refused(str(no))


def told_of(frame: object) -> tuple[Own, ...]:
    """The flow runs that a frame of events/out is about; a frame about none is for nobody."""
    if not isinstance(frame, dict) or frame.get("type") != "event":
        return ()
    try:
        ids = list(_resources(fields(frame.get("event"))))
        mark = "prefect.flow-run."
        return tuple(own("flow_run", i.removeprefix(mark)) for i in ids if i.startswith(mark))
    except NotAllowed:
        return ()


def is_filter(frame: object) -> bool:
    """The only frame that a pod may send on events/out."""
    return isinstance(frame, dict) and frame.get("type") == "filter"


def judge_hello(token: Token, frame: object) -> Allowed | Refused:
    """The verdict on the first frame of a worker: its own name, its own queue.

    A worker offers to fill in the pool's job template, which is the command that every pod runs:
    that offer is taken out.
    """
    try:
        hello = fields(frame)
        payload = fields(hello.get("payload"))
        if hello.get("type") != "worker.hello.v1":
            raise NotAllowed("the first frame must be worker.hello.v1")
        if payload.get("worker_name") != token.worker:
            raise NotAllowed(f"the worker of this run is called {token.worker}")
        if payload.get("work_queue_names") != [token.queue]:
            raise NotAllowed("only the run's own queue")
    except NotAllowed as no:
        return Refused(str(no))
    harmless = {**payload, "create_pool_if_not_found": False, "default_base_job_template": {}}
    return Allowed(body={**hello, "payload": harmless})


def judge_worker_frame(token: Token, frame: object) -> Allowed | Refused:
    """The verdict on a later frame of a worker."""
    if not isinstance(frame, dict) or frame.get("type") not in WORKER_FRAMES:
        return Refused("not a frame of workers")
    payload = frame.get("payload")
    named = payload.get("worker_name", token.worker) if isinstance(payload, dict) else None
    return Allowed(body=frame) if named == token.worker else Refused("another worker")


def _judge_event(token: Token, event: Mapping[str, Any]) -> Iterator[Own]:
    name = str(event.get("event"))
    subject, *related = _resources(event)
    about = next((what for start, what in SPOKEN_OF.items() if name.startswith(start)), None)
    if about is None or not subject.startswith(about):
        raise NotAllowed(f"not an event of pods: {name[:60]}")
    if about == "axolotl.run." and subject != f"axolotl.run.{token.run}":
        raise NotAllowed("an event of another run")
    things = [thing for text in (subject, *related) for thing in _thing(token, text)]
    is_own_worker = subject.endswith(f".{token.worker}")
    of_the_run = about == "axolotl.run." or is_own_worker
    if about == "prefect.worker." and not is_own_worker:
        raise NotAllowed("an event of another worker")
    if not of_the_run and not any(thing.kind == "flow_run" for thing in things):
        raise NotAllowed("an event of no flow run")
    payload = event.get("payload")
    task_run = payload.get("task_run") if isinstance(payload, dict) else None
    if isinstance(task_run, dict) and TASK_RUN_IDENTITY & set(task_run):
        raise NotAllowed("a task run that calls itself by another id")
    yield from things


def _thing(token: Token, resource: str) -> Iterator[Own]:
    if resource.startswith("prefect.tag.run:") and resource != f"prefect.tag.run:{token.run}":
        raise NotAllowed("the tag of another run")
    for start, kind in OWNED.items():
        if resource.startswith(start):
            yield own(kind, resource.removeprefix(start))


def _resources(event: Mapping[str, Any]) -> Iterator[str]:
    """The ids of the event's resource and of the related ones."""
    related = event.get("related") or []
    if not isinstance(related, list):
        raise NotAllowed("the related resources must be a list")
    for resource in (event.get("resource"), *related):
        found = fields(resource).get("prefect.resource.id")
        if not isinstance(found, str):
            raise NotAllowed("a resource without an id")
        yield found
