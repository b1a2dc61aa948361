"""A VastCloud over the emulator, on the emulator's clock: nothing waits for real time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from blocks.cloud import PodOrder
from blocks.vast.client import VastClient
from blocks.vast.cloud import VastCloud
from tests.emulators.clock import Clock
from tests.emulators.testing import NOON, plain_client
from tests.emulators.vast import Emulator
from tests.emulators.vast.testing import A40, A5000, RTX_3090, RTX_4090

__all__ = ["A40", "A5000", "NOW", "RTX_3090", "RTX_4090", "Rented", "order", "rented"]
NOW = datetime.fromtimestamp(NOON, UTC)


class Rented:
    """The emulator, the cloud under test, and what was asked of it."""

    def __init__(self, emulator: Emulator) -> None:
        self.emulator = emulator
        client = VastClient(
            emulator.key, emulator.url, clock=emulator.clock.now, sleep=emulator.advance
        )
        self.cloud = VastCloud(
            client,
            clock=emulator.clock.now,
            sleep=emulator.advance,
            now=lambda: datetime.fromtimestamp(emulator.clock.now(), UTC),
        )

    @property
    def pods(self) -> list[dict[str, Any]]:
        """The living instances."""
        return list(self.emulator.state["pods"])

    @property
    def gone(self) -> list[dict[str, Any]]:
        """The destroyed ones."""
        return list(self.emulator.state["ended"])

    def calls(self, method: str, part: str) -> list[dict[str, Any]]:
        """The requests of this kind."""
        asked = self.emulator.state["requests"]
        return [call for call in asked if call["method"] == method and part in call["path"]]

    @property
    def creates(self) -> list[dict[str, Any]]:
        """The create calls."""
        return self.calls("PUT", "/asks/")

    def owner(self) -> httpx.Client:
        """What the account's owner does elsewhere."""
        headers = {"Authorization": f"Bearer {self.emulator.key}"}
        return plain_client(base_url=f"{self.emulator.url}/api/v0", headers=headers)


@contextmanager
def rented(**switches: Any) -> Iterator[Rented]:
    """A new emulator with these faults, and with Vast's least times between calls; what was sent
    and answered kept the published contract.
    """
    with Emulator(clock=Clock(stopped_at=NOON), images={}) as emulator:
        emulator.set(**switches)
        yield Rented(emulator)
        assert emulator.state["violations"] == []


def order(run: str = "1", **changes: Any) -> PodOrder:
    """An order whose container does nothing."""
    values: dict[str, Any] = {
        "environment": {"AXR_RUN": run},
        "deadline": NOW + timedelta(hours=8),
        "hours": 8.0,
        "gpus": (A5000,),
        "start_script": "sleep 600",
        "disk_gb": 20,
        "volume_gb": 20,
    }
    return PodOrder(run, **{**values, **changes})
