"""The Cloud interface: what the rest of the project knows of a place that has pods.

Nine verbs: `create`, `find`, `list_ours`, `survey`, `status`, `terminate`, `price`, `prices` and
`log`. Each cloud is a folder beside this file, its client apart from its mapping. The contract that
every cloud keeps:

- a pod's name is `axr-<run>`, written before or with the create call; no look-up table exists
  elsewhere
- `create` looks first: one run never has two pods; a stopped pod of the run is started again
- `list_ours` raises when it could not see everything; an empty list means that nothing of ours is
  there
- `terminate` returns only after a successful listing no longer holds the pod; a missing pod is a
  success
- only pods named `axr-…` are ever touched
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol

NAME_PREFIX = "axr-"
# The variable of a pod that tells which installation rented it; clouds show it in their listings.
INSTALLATION = "AXR_INSTALLATION"


class PodPhase(StrEnum):
    """What the cloud says of a pod's container."""

    QUEUED = "queued"  # accepted, no machine yet
    STARTING = "starting"  # the image is fetched, the container starts
    RUNNING = "running"
    STOPPED = "stopped"
    OUTBID = "outbid"  # an interruptible one whose GPUs went to a higher bid; its disk is kept
    BROKEN = "broken"  # will not run again: an error, or a host without its GPUs


@dataclass(frozen=True)
class Pod:
    """A machine that belongs to one run. `price_per_hour` in USD, storage included.

    `place` names the kind of machine it is, for `PodOrder.avoid`; `installation` is what its
    variable INSTALLATION says. Both are empty when unknown. `loading_per_hour` is what it costs
    until its container runs, None where the full price is billed from the start or nobody knows.
    """

    id: str
    name: str
    cloud: str
    created: datetime
    price_per_hour: float
    place: str = ""
    installation: str = ""
    loading_per_hour: float | None = None

    @property
    def run(self) -> str:
        return self.name.removeprefix(NAME_PREFIX)


@dataclass(frozen=True)
class PodOrder:
    """What one run asks of a cloud: everything `create` needs; a cloud takes what it can use.

    `start_script` is what the container runs; `avoid` holds places that turned out dead; `hours` is
    how long the machine is needed; USD per hour; sizes in GB, `min_download` and `min_upload` in
    Mbps.
    """

    run: str
    environment: Mapping[str, str] = field(repr=False)
    deadline: datetime
    gpus: tuple[str, ...] = ()
    gpu_count: int = 1
    max_price_per_hour: float = 5.0
    start_script: str = field(default="", repr=False)
    image: str | None = None
    disk_gb: int = 50
    volume_gb: int = 100
    volume_path: str = "/workspace/data"
    network_volume: str | None = None
    ports: tuple[str, ...] = ()
    ssh: bool = False
    jupyter: bool = False
    template: str | None = None
    registry: str | None = None
    cloud_type: str = "ALL"
    data_centers: tuple[str, ...] = ()
    min_cuda: str | None = None
    avoid: frozenset[str] = frozenset()
    spot: bool = False
    max_bid_per_gpu: float | None = None
    min_vcpu: int | None = None
    min_ram_gb: int | None = None
    min_download: int | None = None
    min_upload: int | None = None
    hours: float = 24.0

    @property
    def name(self) -> str:
        return f"{NAME_PREFIX}{self.run}"


@dataclass(frozen=True)
class PodStatus:
    """One look at a pod; None is unknown, never zero.

    Percentages 0–100, memory in bytes, uptime in seconds. `ssh` is a command that opens a shell in
    the pod, for whoever has a key there.
    """

    phase: PodPhase
    uptime: float | None = None
    cpu_percent: float | None = None
    ram_bytes: int | None = None
    gpu_percent: float | None = None
    vram_bytes: int | None = None
    ram_percent: float | None = None
    vram_percent: float | None = None
    ssh: str | None = None


@dataclass(frozen=True)
class Seen:
    """One pod of ours in a listing, with what the listing says of it."""

    pod: Pod
    status: PodStatus


class Cloud(Protocol):
    """A place that has pods. Errors are those of `runner.errors`."""

    @property
    def name(self) -> str:
        """The word of task files."""

    def create(self, order: PodOrder) -> Pod:
        """The pod of the order's run: the one that exists, else a new one. NoCapacity, OutOfFunds,
        CreateFailed.
        """

    def find(self, run: str) -> Pod | None:
        """The pod of this run, None when a successful listing does not hold it."""

    def list_ours(self) -> list[Pod]:
        """All pods named `axr-…`; raises TryAgain or KeyRefused rather than returning a part."""

    def survey(self) -> list[Seen]:
        """`list_ours` with phase and telemetry of each pod, in the calls of one listing."""

    def status(self, pod: Pod) -> PodStatus:
        """Phase and telemetry; PodLost when a successful look-up does not find it."""

    def terminate(self, pod: Pod) -> None:
        """End the pod and confirm that it is gone; TryAgain while that can't be confirmed."""

    def price(self, order: PodOrder) -> float:
        """USD per hour that the order would cost here."""

    def prices(self, order: PodOrder) -> dict[str, float]:
        """USD per hour of the pod with each of the order's GPUs that this cloud has within the
        price limit; what it does not know is left out. TryAgain, KeyRefused.
        """

    def log(self, pod: Pod) -> str:
        """The last lines that the pod's container and its host have said, within some seconds;
        empty where there are none. Errors as those of `status`.
        """
