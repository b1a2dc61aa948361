"""The world around a parent: an emulated cloud whose pods are played, and who looks after it all.

A pod's container is a stand-in. While it runs it does what a pod's worker does: it takes the run's
flow runs off its queue on the real Prefect server, one at a time, takes its time, and completes
them with the facts that the parent expects. Its volume is a set of words; the hub is another one,
so that a model is lost exactly when nobody holds it any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from prefect.client.schemas.objects import FlowRun, State
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, Completed, Failed, Running

from runner.attempts import AttemptFacts, to_message
from tasks.api import api
from tests.emulators.clock import Clock
from tests.emulators.runpod.emulator import Emulator as RunPodEmulator
from tests.emulators.vast.emulator import Emulator as VastEmulator

STEPS = 30
# Seconds that a step takes on a pod: the parent looks at its pod every 10.
TAKES = {"prepare": 1.0, "train": 12.0, "publish": 1.0}
LOOKS_EVERY = 3.0
HUB = "me/crash-sweep"


class StillContainer:
    """A container that runs nothing and never ends."""

    pid = None
    exit_code = None

    def __init__(self, *_: object) -> None:
        pass

    def ask_to_end(self) -> None:
        """Nobody is there to be asked."""


def emulated(cloud: str, clock: Clock) -> RunPodEmulator | VastEmulator:
    """An emulator of this cloud whose containers run nothing."""
    kind: type[Any] = {"runpod": RunPodEmulator, "vast": VastEmulator}[cloud]
    made: RunPodEmulator | VastEmulator = kind(images={}, clock=clock, credit=1e6)
    made.account.host.container = StillContainer  # type: ignore[assignment]
    return made


@dataclass
class PlayedPod:
    """What a running pod is at, and what lies on its disk."""

    id: str
    run: str
    at: FlowRun | None = None
    done_at: float = 0.0
    next_look: float = 0.0
    disk: set[str] = field(default_factory=set)


@dataclass
class World:
    """One run in one cloud; `turn` lets its pods work up to the present."""

    cloud: str
    emulator: RunPodEmulator | VastEmulator
    now: Callable[[], float]
    run: str = ""
    hub: set[str] = field(default_factory=set)
    store: set[str] = field(default_factory=set)
    pods: dict[str, PlayedPod] = field(default_factory=dict)
    trained: bool = False
    kill_at_step: str | None = None

    def begin(self, run: str, *, kill_at_step: str | None = None) -> None:
        """A new run: nobody holds anything of it. `kill_at_step`: its first pod is lost there."""
        self.run, self.trained, self.kill_at_step = run, False, kill_at_step
        self.hub, self.store, self.pods = set(), set(), {}

    def turn(self) -> None:
        """Pods boot, take work, and finish what is due."""
        self.emulator.advance()
        for pod_id in self._running():
            pod = self.pods.setdefault(pod_id, PlayedPod(pod_id, self.run))
            if pod.at is None:
                self._take(pod)
            elif self.now() >= min(pod.done_at, pod.next_look):
                pod.next_look = self.now() + LOOKS_EVERY
                self._go_on(pod)

    def worker_is_online(self, pod: Any) -> bool:
        """What the Prefect server knows by the worker's heartbeat."""
        return pod.id in self._running()

    def left(self) -> list[str]:
        """The pods of the run that live."""
        return [pod_id for pod_id, _, ended in self.history() if ended is None]

    def most_at_once(self) -> int:
        """Over all of the run's time."""
        spans = [(start, end if end is not None else float("inf")) for _, start, end in
                 self.history()]  # fmt: skip
        return max((sum(a <= start < b for a, b in spans) for start, _ in spans), default=0)

    def kill(self, pod_id: str) -> None:
        """The pod is lost."""
        self.emulator.set(kill_pod=int(pod_id) if self.cloud == "vast" else pod_id)

    @property
    def is_model_kept(self) -> bool:
        """Whether what was trained is somewhere where it lasts."""
        return not self.trained or bool(self.hub or self.store)

    def _take(self, pod: PlayedPod) -> None:
        """As a worker: the oldest flow run that waits in the queue of this run."""
        queue = f"axr-{pod.run}"
        with suppress(ObjectNotFound):
            found = api().get_scheduled_flow_runs_for_work_pool("pods", work_queue_names=[queue])
            if not found:
                return
            child = found[0].flow_run
            _set(child.id, Running())
            pod.at, pod.done_at = child, self.now() + TAKES[_step(child)]
            if _step(child) == "train":
                api().update_flow_run_labels(child.id, {"axr.pod": pod.id})

    def _go_on(self, pod: PlayedPod) -> None:
        assert pod.at is not None
        child = api().read_flow_run(pod.at.id)
        if child.state is None or child.state.is_final():
            pod.at = None
        elif child.state.is_cancelling():
            _set(child.id, Cancelled())
            pod.at = None
        elif _step(child) == self.kill_at_step and self.now() > pod.done_at - 6:
            self.kill_at_step = None
            self.kill(pod.id)
        elif self.now() >= pod.done_at:
            _set(child.id, self._do(pod, child))
            pod.at = None

    def _do(self, pod: PlayedPod, child: FlowRun) -> State[Any]:
        step = _step(child)
        if step == "train":
            attempt = int(child.parameters["attempt"])
            self.trained = True
            pod.disk.add("model")
            facts = AttemptFacts(
                attempt, "completed", "trained", first_step=1, last_step=STEPS,
                planned_steps=STEPS, final_loss=1.0, pod=pod.id, cloud=self.cloud,
            )  # fmt: skip
            return Completed(message=to_message(facts))
        if step == "publish":
            if "model" not in pod.disk:
                return Failed(name="Crash", message="there is no model on this pod")
            self.hub.add("model")
            return Completed(message=HUB)
        return Completed(message="ready")

    def history(self) -> Iterator[tuple[str, float, float | None]]:
        """(id, created, ended) of every pod that this run ever had."""
        for one in self._all_of_them():
            name = getattr(one.order, "name", None) or getattr(one.order, "label", None)
            if str(name).partition(" ")[0] == f"axr-{self.run}":
                yield str(one.id), one.created, one.ended

    def _all_of_them(self) -> list[Any]:
        account: Any = self.emulator.account
        with account.lock:
            living = account.pods if self.cloud == "runpod" else account.instances
            return [*living.values(), *account.ended]

    def _running(self) -> list[str]:
        """The run's pods whose containers run."""
        living = set(self.left())
        found = (one for one in self._all_of_them() if str(one.id) in living)
        if self.cloud == "runpod":
            return [str(one.id) for one in found if one.status == "RUNNING"]
        return [str(one.id) for one in found if one.actual == "running" and not one.is_stopped]


def _step(child: FlowRun) -> str:
    return child.name.partition("-")[0]


def _set(child: UUID, state: State[Any]) -> None:
    api().set_flow_run_state(child, state, force=True)
