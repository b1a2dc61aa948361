"""The Prefect API in memory, as far as control logic asks it: flow runs with labels and states,
one variable, one artifact, one schedule, one queue.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from prefect.client.schemas.objects import FlowRun, State
from prefect.exceptions import ObjectNotFound

from tasks import api as api_module


@dataclass
class Server:
    """Answers like the client; what was written is kept in plain attributes."""

    runs: dict[UUID, FlowRun] = field(default_factory=dict)
    deployments: dict[UUID, str] = field(default_factory=dict)
    variables: dict[str, Any] = field(default_factory=dict)
    artifacts: list[Any] = field(default_factory=list)
    schedule: Any = field(default_factory=lambda: SimpleNamespace(id=uuid4(), active=True))
    queue_limit: int | None = 4
    set_states: list[tuple[str, str | None]] = field(default_factory=list)

    def add_run(
        self,
        state: State[Any],
        *,
        age: float = 0.0,
        now: datetime | None = None,
        content: str = "base_model: x\n",
        run_count: int = 1,
        **facts: str | float,
    ) -> str:
        """A `finetune` run that began 5 minutes ago and is in this state for `age` seconds; its
        id.
        """
        run_id, moment = uuid4(), now or datetime.now(UTC)
        state.timestamp = moment - timedelta(seconds=age)
        self.runs[run_id] = FlowRun(
            id=run_id,
            flow_id=uuid4(),
            name="x.yml",
            state=state,
            run_count=run_count,
            parameters={"task_file": "x.yml", "content": content},
            labels={
                "axr.began": (moment - timedelta(minutes=5)).isoformat(),
                **{f"axr.{key}": value for key, value in facts.items()},
            },
        )
        self.deployments[run_id] = "finetune"
        return str(run_id)

    def add_child(
        self,
        run_id: str,
        name: str,
        state: State[Any],
        *,
        age: float = 0.0,
        now: datetime | None = None,
        **labels: str | float,
    ) -> str:
        """A flow run on the pod of this run; its id."""
        child = uuid4()
        state.timestamp = (now or datetime.now(UTC)) - timedelta(seconds=age)
        self.runs[child] = FlowRun(
            id=child,
            flow_id=uuid4(),
            name=name,
            state=state,
            created=state.timestamp,
            start_time=state.timestamp,
            tags=[f"run:{run_id}"],
            idempotency_key=f"{run_id}:{name.replace('-', ':')}",
            labels={f"axr.{key}": value for key, value in labels.items()},
        )
        self.deployments[child] = "pod"
        return str(child)

    def facts(self, run_id: str) -> dict[str, str]:
        """The labels of a run that are not empty."""
        labels = self.runs[UUID(run_id)].labels
        return {k.removeprefix("axr."): str(v) for k, v in labels.items() if v}

    def state(self, run_id: str) -> str | None:
        """The name of a run's state."""
        state = self.runs[UUID(run_id)].state
        return state.name if state else None

    def read_flow_run(self, flow_run_id: UUID) -> FlowRun:
        if flow_run_id not in self.runs:
            raise ObjectNotFound(Exception())
        return self.runs[flow_run_id]

    def read_flow_runs(self, **asked: Any) -> list[FlowRun]:
        found = list(self.runs.values())
        by_deployment = asked.get("deployment_filter")
        if by_deployment:
            names = by_deployment.name.any_
            found = [run for run in found if self.deployments[run.id] in names]
        by_run = asked.get("flow_run_filter")
        if by_run and by_run.state:
            types = by_run.state.type.any_
            found = [run for run in found if run.state and run.state.type in types]
        if by_run and by_run.tags:
            found = [run for run in found if set(by_run.tags.all_) <= set(run.tags)]
        return found

    def update_flow_run_labels(self, flow_run_id: UUID, labels: dict[str, Any]) -> None:
        self.read_flow_run(flow_run_id).labels.update(labels)

    def set_flow_run_state(self, flow_run_id: UUID, state: State[Any], force: bool = False) -> None:
        self.read_flow_run(flow_run_id).state = state
        self.set_states.append((str(flow_run_id), state.name))

    def read_variable_by_name(self, name: str) -> Any:
        return SimpleNamespace(value=self.variables[name]) if name in self.variables else None

    def create_variable(self, variable: Any) -> None:
        self.variables[variable.name] = variable.value

    def read_artifacts(self, **asked: Any) -> list[Any]:
        wanted = asked["artifact_filter"].key.any_
        return [artifact for artifact in self.artifacts if artifact.key in wanted]

    def create_artifact(self, artifact: Any) -> None:
        self.artifacts.append(SimpleNamespace(id=uuid4(), key=artifact.key, data=artifact.data))

    def update_artifact(self, artifact_id: UUID, artifact: Any) -> None:
        (found,) = (one for one in self.artifacts if one.id == artifact_id)
        found.data = artifact.data

    def read_deployment_by_name(self, name: str) -> Any:
        return SimpleNamespace(id=uuid4(), schedules=[self.schedule], tags=[])

    def create_flow_run_from_deployment(
        self, deployment_id: UUID, *, idempotency_key: str, **made: Any
    ) -> FlowRun:
        """One run for each key."""
        for run in self.runs.values():
            if run.idempotency_key == idempotency_key:
                return run
        run_id = uuid4()
        self.runs[run_id] = FlowRun(
            id=run_id, flow_id=uuid4(), name="x", idempotency_key=idempotency_key, **made
        )
        self.deployments[run_id] = "finetune"
        return self.runs[run_id]

    def update_deployment_schedule(self, *ids: UUID, active: bool) -> None:
        self.schedule.active = active

    def read_work_queue_by_name(self, name: str, work_pool_name: str) -> Any:
        if name.startswith("axr-"):
            raise ObjectNotFound(Exception())
        return SimpleNamespace(id=uuid4(), concurrency_limit=self.queue_limit)


def stand_in(monkeypatch: pytest.MonkeyPatch) -> Server:
    """A new server, in the place of the one that this process would ask."""
    server = Server()
    monkeypatch.setattr(api_module, "_client", lambda url: server)
    return server
