"""What tests of this process need: an emulator with stopped time, a client, a valid order."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from tests.emulators.clock import Clock
from tests.emulators.testing import NOON, plain_client
from tests.emulators.vast.contract import default_spec
from tests.emulators.vast.emulator import Emulator

READY_S = 0.3
A5000, RTX_3090, RTX_4090, A40 = "RTX A5000", "RTX 3090", "RTX 4090", "A40"
ASK = 3100110  # one GPU of the first machine: an RTX A5000 at $0.22, bids from $0.11
NO_SPEC = "no specs/vast in $AXR_SHARED: calls cannot be validated"


def has_spec() -> bool:
    """Whether the published specifications are there."""
    return default_spec() is not None


def order(**changes: Any) -> dict[str, Any]:
    """A valid create body; a value of None leaves the field out."""
    body = {
        "client_id": "me",
        "image": "axolotl",
        "disk": 20,
        "label": "axr-1",
        "runtype": "args",
        "onstart": "/bin/sh",
        "args": ["-c", "sleep 600"],
        "env": {},
        **changes,
    }
    return {name: value for name, value in body.items() if value is not None}


@dataclass(frozen=True)
class Rig:
    """An emulator without minimum gaps between calls, and a client with the account's key."""

    cloud: Emulator
    api: httpx.Client

    def create(self, ask: int = ASK, **changes: Any) -> int:
        """The id of a new instance."""
        answer = self.api.put(f"/api/v0/asks/{ask}/", json=order(**changes))
        assert answer.status_code == 200, answer.text
        return int(answer.json()["new_contract"])

    def running(self, ask: int = ASK, **changes: Any) -> int:
        """The id of a new instance that runs."""
        made = self.create(ask, **changes)
        self.cloud.advance(READY_S)
        return made

    def pod(self, number: int) -> dict[str, Any]:
        """What the API says of it."""
        answer = self.api.get(f"/api/v0/instances/{number}/", params={"owner": "me"})
        assert answer.status_code == 200, answer.text
        return dict(answer.json()["instances"])

    def offers(self, **query: Any) -> list[dict[str, Any]]:
        """What a search finds."""
        answer = self.api.post("/api/v0/bundles/", json=query)
        assert answer.status_code == 200, answer.text
        return list(answer.json()["offers"])

    def as_pod(self, number: int) -> httpx.Client:
        """A client with the instance's own key."""
        state = self.cloud.state
        (key,) = (pod["key"] for pod in state["pods"] + state["ended"] if pod["id"] == number)
        return plain_client(base_url=self.cloud.url, headers={"Authorization": f"Bearer {key}"})


@contextlib.contextmanager
def rig(clock: Clock | None = None, gaps: object = False, **options: Any) -> Iterator[Rig]:
    """A new one, whose time stands still at NOON if no clock is given."""
    stopped = clock or Clock(stopped_at=NOON)
    with Emulator(clock=stopped, images={}, **options) as cloud:
        cloud.set(gaps=gaps)
        headers = {"Authorization": f"Bearer {cloud.key}"}
        with plain_client(base_url=cloud.url, headers=headers) as api:
            yield Rig(cloud, api)
