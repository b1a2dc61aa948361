"""What tests of this process need: an emulator with stopped time, a client, a valid order."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from tests.emulators.clock import Clock
from tests.emulators.runpod.contract import default_spec
from tests.emulators.runpod.emulator import Emulator
from tests.emulators.testing import NOON, plain_client

READY_S = 0.3
RTX_4090 = "NVIDIA GeForce RTX 4090"
NO_SPEC = "no runpod_v2_openapi.json in $AXR_SHARED/specs: calls cannot be validated"


def has_spec() -> bool:
    """Whether the published specification is there."""
    return default_spec() is not None


def order(**changes: Any) -> dict[str, Any]:
    """A valid create body; a value of None leaves the field out."""
    body = {"name": "axr-1", "image": "axolotl", "gpu": {"id": RTX_4090, "count": 1}, **changes}
    return {name: value for name, value in body.items() if value is not None}


@dataclass(frozen=True)
class Rig:
    """An emulator and a client with the account's key."""

    cloud: Emulator
    api: httpx.Client

    def create(self, **changes: Any) -> str:
        """The id of a new pod."""
        answer = self.api.post("/v2/pods", json=order(**changes))
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def running(self, **changes: Any) -> str:
        """The id of a new pod that runs."""
        pod = self.create(**changes)
        self.cloud.advance(READY_S)
        return pod

    def pod(self, pod_id: str) -> dict[str, Any]:
        """What the API says of it."""
        answer = self.api.get(f"/v2/pods/{pod_id}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def graphql(self, query: str, **variables: Any) -> httpx.Response:
        """The answer to a document."""
        return self.api.post("/graphql", json={"query": query, "variables": variables})

    def as_pod(self, pod_id: str) -> httpx.Client:
        """A client with the pod's own key."""
        state = self.cloud.state
        (key,) = (pod["key"] for pod in state["pods"] + state["ended"] if pod["id"] == pod_id)
        return plain_client(base_url=self.cloud.origin, headers={"Authorization": f"Bearer {key}"})


@contextlib.contextmanager
def rig(clock: Clock | None = None, **options: Any) -> Iterator[Rig]:
    """A new one, whose time stands still at NOON if no clock is given."""
    stopped = clock or Clock(stopped_at=NOON)
    with Emulator(clock=stopped, images={}, **options) as cloud:
        headers = {"Authorization": f"Bearer {cloud.key}"}
        with plain_client(base_url=cloud.origin, headers=headers) as api:
            yield Rig(cloud, api)
