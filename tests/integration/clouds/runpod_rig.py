"""A RunPodCloud over the emulator, on the emulator's clock: nothing waits for real time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from blocks.cloud import PodOrder
from blocks.runpod.client import RunPodClient
from blocks.runpod.cloud import RunPodCloud
from tests.emulators.runpod import Clock, Emulator
from tests.emulators.testing import NOON, plain_client

A5000, RTX_3090, A40 = "NVIDIA RTX A5000", "NVIDIA GeForce RTX 3090", "NVIDIA A40"
NOW = datetime.fromtimestamp(NOON, UTC)


class Rented:
    """The emulator, the cloud under test, and what was asked of it."""

    def __init__(self, emulator: Emulator) -> None:
        self.emulator = emulator
        self.cloud = RunPodCloud(
            RunPodClient(emulator.key, emulator.url),
            clock=emulator.clock.now,
            sleep=emulator.advance,
            now=lambda: datetime.fromtimestamp(emulator.clock.now(), UTC),
        )

    @property
    def pods(self) -> list[dict[str, Any]]:
        """The living pods."""
        return list(self.emulator.state["pods"])

    def calls(self, method: str, path: str) -> list[dict[str, Any]]:
        """The requests of this kind."""
        asked = self.emulator.state["requests"]
        return [call for call in asked if call["method"] == method and call["path"] == path]

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """What the owner does in the web console."""
        headers = {"Authorization": f"Bearer {self.emulator.key}"}
        with plain_client(base_url=self.emulator.url, headers=headers) as owner:
            return dict(owner.post(path, json=body).raise_for_status().json())

    @property
    def creates(self) -> list[dict[str, Any]]:
        """The create calls."""
        return self.calls("POST", "/v2/pods")


@contextmanager
def rented(**switches: Any) -> Iterator[Rented]:
    """A new emulator with these faults; what was sent and answered kept the published contract."""
    with Emulator(clock=Clock(stopped_at=NOON), images={}) as emulator:
        emulator.set(**switches)
        made = Rented(emulator)
        yield made
        made.cloud.client.close()
        assert emulator.state["violations"] == []


def order(run: str = "1", **changes: Any) -> PodOrder:
    """An order whose container does nothing."""
    values: dict[str, Any] = {
        "environment": {"AXR_RUN": run},
        "deadline": NOW + timedelta(hours=1),
        "gpus": (A5000,),
        "start_script": "sleep 600",
        "cloud_type": "SECURE",
    }
    return PodOrder(run, **{**values, **changes})
