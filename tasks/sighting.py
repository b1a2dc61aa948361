"""Looking at pods: what each cloud lists, what the server knows of a pod's run, what the pod does.

Nothing is changed here, so the sweep and `axolotl-runner pods` share it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Literal
from uuid import UUID

from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import ObjectNotFound

from blocks import shared_look
from blocks.cloud import Cloud, Pod, PodPhase, PodStatus
from blocks.clouds import all_clouds, cloud_of, is_rented
from blocks.logs import log
from runner.errors import ConfigError, RunnerError
from runner.idleness import Activity, Sight, Work, activity
from runner.pod_table import PodRow
from runner.report import pod_cost
from runner.settings import RunnerSettings
from tasks.api import api
from tasks.run import make_order
from tasks.standing import PREFIX, children, facts_of, pods_of
from tasks.whose_pods import installation_id, is_foreign, names_a_run

CONTAINERS: dict[PodPhase, Literal["starting", "running", "stopped"]] = {
    PodPhase.QUEUED: "starting",
    PodPhase.STARTING: "starting",
    PodPhase.RUNNING: "running",
    PodPhase.STOPPED: "stopped",
    PodPhase.OUTBID: "stopped",
    PodPhase.BROKEN: "stopped",
}


@dataclass(frozen=True)
class Listing:
    """All pods of ours that could be seen; `seen` are the clouds that gave a whole list, `failed`
    says why the others gave none: nothing that was there counts as gone.
    """

    pods: tuple[Pod, ...]
    seen: frozenset[str] = frozenset()
    failed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Known:
    """What the server knows of a pod's run."""

    flow_run: FlowRun
    settings: RunnerSettings
    facts: Mapping[str, str]
    children: tuple[FlowRun, ...]

    @property
    def began(self) -> datetime:
        """When it began; `max_hours` counts from here."""
        if "began" in self.facts:
            return datetime.fromisoformat(self.facts["began"])
        return self.flow_run.start_time or self.flow_run.created or datetime.now(UTC)

    @property
    def over(self) -> bool:
        """Whether it has ended; a crashed parent is revived and wants its pod."""
        state = self.flow_run.state
        return state is not None and state.is_final() and not state.is_crashed()

    @property
    def ended(self) -> datetime | None:
        """When it ended, None while it has not."""
        state = self.flow_run.state
        return state.timestamp if state is not None and self.over else None

    @property
    def decided(self) -> bool:
        """Whether its outcome is decided, so that only its end is left to do."""
        state = self.flow_run.state
        return "outcome" in self.facts or (state is not None and state.is_cancelling())


@dataclass(frozen=True)
class Sighting:
    """One pod at one moment; `status` None: the cloud can't say now."""

    pod: Pod
    what: Activity = Activity.UNKNOWN
    status: PodStatus | None = None
    known: Known | None = None
    foreign: bool = False

    def row(self, now: datetime, note: str = "") -> PodRow:
        """As the table shows it."""
        status = self.status or PodStatus(PodPhase.QUEUED)
        bill = pods_of(self.known.facts).get(self.pod.id, {}) if self.known else {}
        price = self.pod.price_per_hour or float(bill.get("price_per_hour") or 0.0)
        return PodRow(
            run=self.pod.run,
            pod=self.pod.id,
            cloud=self.pod.cloud,
            phase=str(self.what),
            price_per_hour=price,
            cost_usd=pod_cost(self.pod.created, None, price, now),
            cpu_percent=status.cpu_percent,
            gpu_percent=status.gpu_percent,
            ram_percent=status.ram_percent,
            ram_bytes=status.ram_bytes,
            vram_percent=status.vram_percent,
            vram_bytes=status.vram_bytes,
            uptime=status.uptime,
            note=note,
            step=_number(self._labels, "step"),
            planned_steps=_number(self._labels, "planned_steps"),
            seconds_left=_number(self._labels, "seconds_left"),
        )

    @property
    def forwarding_since(self) -> int | None:
        """Since when (Unix seconds) its trainer passes over rows that it has seen; None when it
        does not.
        """
        forwards = self.what is Activity.FORWARDING
        return _number(self._labels, "phase_at") if forwards else None

    @property
    def at_step(self) -> int:
        """The last step that was done; 0 while that is unknown."""
        return _number(self._labels, "step") or 0

    @property
    def _labels(self) -> Mapping[str, object]:
        """What the flow run that follows a trainer on it says; empty when there is none."""
        steps = self.known.children if self.known else ()
        running = [step for step in steps if step.state and step.state.is_running()]
        return running[-1].labels if running and running[-1].name.startswith("train-") else {}


def list_everywhere(clouds: Sequence[Cloud] | None = None) -> Listing:
    """Ask every cloud; one that fails costs its own pods' sight, not that of the others."""
    pods: list[Pod] = []
    seen, failed = set(), {}
    for cloud in all_clouds() if clouds is None else clouds:
        try:
            pods += cloud.list_ours()
        except RunnerError as error:
            failed[cloud.name] = str(error)
        except Exception as strange:  # an answer in a new form must not blind us for other clouds
            log().exception("The pods of %s can't be listed", cloud.name)
            failed[cloud.name] = type(strange).__name__
        else:
            seen.add(cloud.name)
    return Listing(tuple(pods), frozenset(seen), failed)


def look_at(pod: Pod, now: datetime, *, ask_server: bool = True) -> Sighting:
    """What there is to know of one pod. Without a server its run is unknown, and so what it does
    beyond booting.
    """
    whose = look_whose(pod) if ask_server else Sighting(pod)
    status = _status(pod, now)
    what = activity(_sight(pod, status, whose.known), now.timestamp())
    return replace(whose, what=what, status=status)


def look_whose(pod: Pod) -> Sighting:
    """Whether a pod is ours, and what the server knows of its run; the pod isn't looked at."""
    known = know(pod.run) if names_a_run(pod) else None
    foreign = is_foreign(pod, run_is_known=known is not None, own=installation_id())
    return Sighting(pod, known=known, foreign=foreign)


def know(run_id: str) -> Known | None:
    """What the server knows of this run; None when it does not know it."""
    try:
        flow_run = api().read_flow_run(UUID(run_id))
    except ObjectNotFound:
        return None
    return Known(flow_run, _settings(flow_run), facts_of(flow_run), tuple(children(run_id)))


def _status(pod: Pod, now: datetime) -> PodStatus | None:
    try:
        return shared_look.status_of(pod, cloud_of(pod), now=now.timestamp)
    except RunnerError as unseen:  # PodLost too: the next listing will tell
        log().info("The pod %s on %s can't be looked at: %s", pod.id, pod.cloud, unseen)
        return None


def _sight(pod: Pod, status: PodStatus | None, known: Known | None) -> Sight:
    container = CONTAINERS[status.phase] if status else None
    return Sight(
        container=container,
        created=pod.created.timestamp(),
        work=tuple(_work(child) for child in known.children) if known else (),
        gpu_percent=status.gpu_percent if status else None,
        cpu_percent=status.cpu_percent if status else None,
        has_gpu=is_rented(pod.cloud),
        run_over=known.over if known else True,
        warm_seconds=known.settings.resume.warm_seconds if known else 0.0,
    )


def _work(child: FlowRun) -> Work:
    state = child.state
    assert state is not None, "a flow run always has a state on the server"
    waiting = state.is_scheduled() or state.is_pending()
    phase_at = child.labels.get(f"{PREFIX}phase_at")
    return Work(
        step=child.name.partition("-")[0],
        stage="over" if state.is_final() else "waiting" if waiting else "running",
        since=state.timestamp.timestamp(),
        phase=str(child.labels[f"{PREFIX}phase"]) if f"{PREFIX}phase" in child.labels else None,
        phase_at=float(phase_at) if phase_at else None,
    )


def _number(labels: Mapping[str, object], name: str) -> int | None:
    value = labels.get(f"{PREFIX}{name}")
    return int(float(str(value))) if value not in (None, "") else None


def _settings(flow_run: FlowRun) -> RunnerSettings:
    """Of the run's task file; the defaults hold for one that can't be read."""
    asked = flow_run.parameters
    try:
        order = make_order(str(asked["task_file"]), asked.get("content"), asked.get("cloud"))
    except (ConfigError, KeyError, OSError):
        return RunnerSettings()
    return order.settings
