"""What happens to instances as time goes by: boots, restarts, outbids, ends."""

from __future__ import annotations

import random
import time
from decimal import Decimal

from tests.emulators.clock import Clock
from tests.emulators.containers import Container, kill_all, mapped
from tests.emulators.folders import Folders
from tests.emulators.images import Images
from tests.emulators.vast.environment import DATA, environment
from tests.emulators.vast.faults import Faults
from tests.emulators.vast.instances import Instance

# How long an instance that ends itself still has to read the answer, seconds.
SELF_END_S = 0.1


class Host:
    """The machines: they run the containers of instances. Its owner serialises the calls."""

    def __init__(self, clock: Clock, faults: Faults, folders: Folders, images: Images) -> None:
        self.clock = clock
        self.faults = faults
        self.folders = folders
        self.images = images
        self.container: type[Container] = Container

    def advance(self, one: Instance) -> None:
        """Bring an instance that is not stopped to the present."""
        if one.is_stopped or one.lost is not None or one.ghost:
            return
        self._boot_on(one, self.clock.now() - one.boot_from)
        if one.actual == "running":
            self._keep_running(one)

    def boot(self, one: Instance) -> None:
        """It gets its GPUs and begins to boot, for the first time or again."""
        one.state = one.wanted = "running"
        one.outbid = one.scheduling = False
        one.actual = "loading" if one.has_image else None
        one.message = None
        one.boot_from = self.clock.now()
        one.meter_on(one.boot_from)

    def halt(self, one: Instance, message: str) -> None:
        """No more processes and no GPU; the disk stays."""
        self.end_processes(one)
        one.state = one.wanted = "stopped"
        one.actual = "exited" if one.has_image else None
        one.message = message
        one.scheduling = False
        one.running_since = one.restart_at = None
        one.meter_on(self.clock.now())
        one.log.add("system", message)

    def outbid(self, one: Instance) -> None:
        """A rival has its GPUs: all processes are killed at once."""
        self.halt(one, "stopped: outbid")
        one.outbid = True
        one.message = None  # the API gives no reason

    def restart(self, one: Instance) -> None:
        """The container ends and starts anew at once."""
        self.end_processes(one)
        self._start(one)

    def break_down(self, one: Instance, actual: str) -> None:
        """A state that it does not leave by itself: exited, offline, unknown, frozen."""
        if actual != "unknown":
            self.end_processes(one)
        one.actual, one.lost = actual, self.clock.now()
        one.meter_on(one.lost)

    def end_processes(self, one: Instance) -> None:
        """Every process of the instance is gone when this returns; `grace_seconds` are real."""
        grace = 0.0 if one.outbid else self.faults["grace_seconds"]
        end = time.monotonic() + grace
        if one.container and grace:
            one.container.ask_to_end()
            while one.container.exit_code is None and time.monotonic() < end:
                time.sleep(0.01)
        kill_all(self.folders.mark(str(one.id)))
        one.container = None

    def clear(self, one: Instance) -> None:
        """The end: its processes and its disk."""
        self.end_processes(one)
        one.kill_at = None
        one.log.close()
        if not self.faults["keep_folders"]:
            self.folders.remove(str(one.id))

    def _boot_on(self, one: Instance, passed: float) -> None:
        faults = self.faults
        created = 0.0 if one.has_image else faults["provision_seconds"]
        loading = created + (0.0 if one.has_image else faults["created_seconds"])
        running = loading + (0.05 if one.has_image else faults["image_pull_seconds"])
        if one.actual is None and one.stuck != "null" and passed >= created:
            one.actual = "created"
        if one.actual == "created" and one.stuck != "created" and passed >= loading:
            one.actual = "loading"
            one.message = f"pulling {one.order.image} "
            one.log.add("system", one.message)
        if one.actual == "loading" and one.pull_error:
            one.message = "Error: OCI runtime create failed: no such image"
        elif one.actual == "loading" and one.stuck != "loading" and passed >= running:
            self._come_up(one)

    def _come_up(self, one: Instance) -> None:
        one.actual = "running"
        one.message = f"success, running {one.order.image}/args "
        one.running_since = self.clock.now()
        if not one.has_image:
            one.has_image = True
            cost = Decimal(str(one.ask.machine.down_cost))
            one.traffic += cost * Decimal(str(self.faults["image_gb"]))
        one.meter_on(one.running_since)
        self._start(one)

    def _keep_running(self, one: Instance) -> None:
        now = self.clock.now()
        code = one.container.exit_code if one.container else None
        if code is not None:
            one.log.add("system", f"the container ended with {code}")
            self.end_processes(one)
            one.restart_at = now + self.faults["restart_seconds"]
        if one.restart_at is not None and now >= one.restart_at:
            self._start(one)

    def _start(self, one: Instance) -> None:
        one.restart_at = None
        one.boots += 1
        free = random.sample(range(10_000, 60_000), len(one.order.ports))
        one.public_ports = dict(zip(one.order.ports, free, strict=True))
        pod = str(one.id)
        root, temporary = self.folders.root(pod), self.folders.temporary(pod)
        data = root / DATA.strip("/")
        for folder in (data, temporary):  # they outlive a restart and a stop
            folder.mkdir(parents=True, exist_ok=True)
        variables = environment(one, self.images, root, temporary)
        command = [mapped(word, DATA, data) for word in one.order.command]
        one.log.add("system", f"start container, boot {one.boots}")
        one.container = self.container(command, variables, root, one.log.add)
