"""Whose a thing of the Prefect API is: looked up once, then remembered.

A flow run belongs to the run whose queue it is on. Where that can't change, answers are kept, the
most recent KEPT of each kind; what is not there is asked for again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Generic, TypeVar, assert_never

from deployments.gateway.rules import Own, narrow
from deployments.gateway.upstream import Upstream
from runner.tokens import POOL, Token

KEPT = 4096

V = TypeVar("V")


class Recent(Generic[V]):
    """A dictionary that forgets what was not used for longest."""

    def __init__(self, most: int = KEPT) -> None:
        self._most = most
        self._known: OrderedDict[str, V] = OrderedDict()

    def get(self, key: str) -> V | None:
        """The value, None when it is not known (any more)."""
        if key in self._known:
            self._known.move_to_end(key)
        return self._known.get(key)

    def put(self, key: str, value: V) -> V:
        """Remember and return the value."""
        self._known[key] = value
        self._known.move_to_end(key)
        if len(self._known) > self._most:
            self._known.popitem(last=False)
        return value


class Ownership:
    """Answers whether a thing is the pod's own; upstream.Away when that can't be known now."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._queues: Recent[tuple[str, str]] = Recent()  # flow run → its pool and queue
        self._task_runs: Recent[str] = Recent()  # task run → its flow run, or who spoke of it first
        self._artifacts: Recent[tuple[str, str]] = Recent()  # artifact → its flow run and its key
        self._proven: Recent[bool] = Recent()  # of deployments, flows and queues, by queue

    async def owns(self, token: Token, thing: Own) -> bool:
        """True when the thing belongs to the token's run."""
        match thing.kind:
            case "flow_run":
                return await self._owns_flow_run(token, thing.id)
            case "task_run":
                return await self._owns_task_run(token, thing.id)
            case "artifact":
                return await self._owns_artifact(token, thing.id)
            case "deployment" | "flow" | "work_queue":
                return await self._proves(token, thing)
            case _:
                assert_never(thing.kind)

    def is_of(self, token: Token, flow_run: Mapping[str, Any]) -> bool:
        """True when this flow run, as the API gives it, is on the token's queue."""
        return (flow_run.get("work_pool_name"), flow_run.get("work_queue_name")) == (
            POOL,
            token.queue,
        )

    def remember_artifact(self, artifact: Mapping[str, Any]) -> None:
        """Note whose a new artifact is."""
        found = (str(artifact.get("flow_run_id") or ""), str(artifact.get("key") or ""))
        self._artifacts.put(str(artifact.get("id")), found)

    async def _owns_flow_run(self, token: Token, flow_run: str) -> bool:
        where = self._queues.get(flow_run)
        if where is None:
            found = await self._upstream.read(f"/flow_runs/{flow_run}")
            if found is None:
                return False
            where = (str(found.get("work_pool_name")), str(found.get("work_queue_name")))
            self._queues.put(flow_run, where)
        return where == (POOL, token.queue)

    async def _owns_task_run(self, token: Token, task_run: str) -> bool:
        """Task runs come to be by the events about them: who speaks first of one has made it."""
        owner = self._task_runs.get(task_run)
        if owner is None:
            found = await self._upstream.read(f"/task_runs/{task_run}")
            owner = token.queue if found is None else str(found.get("flow_run_id"))
            self._task_runs.put(task_run, owner)
        if owner.startswith("axr-"):
            return owner == token.queue
        return owner != "None" and await self._owns_flow_run(token, owner)

    async def _owns_artifact(self, token: Token, artifact: str) -> bool:
        known = self._artifacts.get(artifact)
        if known is None:
            found = await self._upstream.read(f"/artifacts/{artifact}")
            if found is None:
                return False
            self.remember_artifact(found)
            known = self._artifacts.get(artifact)
            assert known is not None, "it was remembered a line ago"
        flow_run, key = known
        if flow_run:
            return await self._owns_flow_run(token, flow_run)
        return key.endswith(f"-{token.run}")

    async def _proves(self, token: Token, thing: Own) -> bool:
        """A deployment or flow is the pod's while one of its own runs is of it."""
        name = f"{token.queue} {thing.kind} {thing.id}"
        if self._proven.get(name):
            return True
        if thing.kind == "work_queue":
            queue = await self._upstream.read(f"/work_queues/{thing.id}") or {}
            proven = (queue.get("work_pool_name"), queue.get("name")) == (POOL, token.queue)
        else:
            what = f"{thing.kind}s"
            question = narrow(token, {what: {"id": {"any_": [thing.id]}}, "limit": 1})
            found = await self._upstream.find_flow_runs(question)
            proven = any(
                self.is_of(token, run) and run.get(f"{thing.kind}_id") == thing.id for run in found
            )
        return self._proven.put(name, True) if proven else False
