"""What happens to pods as time goes by: boots, restarts, timers, ends."""

from __future__ import annotations

import time

from tests.emulators.clock import Clock
from tests.emulators.containers import Container, kill_all, mapped
from tests.emulators.folders import Folders
from tests.emulators.images import Images
from tests.emulators.runpod.commands import command_of
from tests.emulators.runpod.environment import environment
from tests.emulators.runpod.faults import Faults
from tests.emulators.runpod.pods import Pod

# How long a pod that ends itself still has to read the answer, seconds.
SELF_END_S = 0.1


class Host:
    """The machines: they run the containers of pods. Its owner serialises the calls."""

    def __init__(self, clock: Clock, faults: Faults, folders: Folders, images: Images) -> None:
        self.clock = clock
        self.faults = faults
        self.folders = folders
        self.images = images
        self.container: type[Container] = Container
        self.ssh_keys: list[str] = []

    def advance(self, pod: Pod) -> None:
        """Bring a living pod to the present."""
        now = self.clock.now()
        if pod.lost is not None or pod.never_ready or pod.empty_machine:
            return
        if pod.status == "PROVISIONING" and now >= pod.boot_from + pod.boot_s:
            pod.status = "STARTING"
            pod.log.add("system", f"pulling {pod.order.image}")
        if pod.status == "STARTING" and now >= pod.boot_from + pod.boot_s + pod.pull_s:
            pod.status = "RUNNING"
            pod.running_since = now
            self._start(pod)
        if pod.status == "RUNNING":
            self._keep_running(pod)

    def boot(self, pod: Pod) -> None:
        """The pod begins to boot, for the first time or again."""
        pod.status = "PROVISIONING"
        pod.boot_from = self.clock.now()
        pod.meter_on(pod.boot_from)

    def restart(self, pod: Pod) -> None:
        """The container ends and starts anew at once, on an empty disk."""
        self.end_processes(pod)
        self._start(pod)

    def stop(self, pod: Pod) -> None:
        """No more processes; the volume stays."""
        self.end_processes(pod)
        pod.status = "EXITED"
        pod.running_since = pod.started = pod.restart_at = None
        pod.meter_on(self.clock.now())
        pod.log.add("system", "stopped")

    def end_processes(self, pod: Pod) -> None:
        """Every process of the pod is gone when this returns; `grace_seconds` are real ones."""
        grace = time.monotonic() + self.faults["grace_seconds"]
        if pod.container and self.faults["grace_seconds"]:
            pod.container.ask_to_end()
            while pod.container.exit_code is None and time.monotonic() < grace:
                time.sleep(0.01)
        kill_all(self.folders.mark(pod.id))
        if pod.container:
            _ = pod.container.exit_code  # asking reaps it
            pod.container = None

    def clear(self, pod: Pod) -> None:
        """The end of a pod: its processes and folders."""
        self.end_processes(pod)
        pod.kill_at = None
        pod.log.close()
        if not self.faults["keep_folders"]:
            self.folders.remove(pod.id)

    def _keep_running(self, pod: Pod) -> None:
        now = self.clock.now()
        code = pod.container.exit_code if pod.container else None
        if code is not None:
            pod.log.add("system", f"the container ended with {code}")
            self.end_processes(pod)
            pod.started = None
            pod.restart_at = now + self.faults["restart_seconds"]
        if pod.restart_at is not None and now >= pod.restart_at:
            self._start(pod)

    def _start(self, pod: Pod) -> None:
        pod.started, pod.restart_at = self.clock.now(), None
        pod.boots += 1
        pod.new_ports()
        self.folders.wipe(pod.id)
        volume = self.folders.volume(pod.id, pod.order.volume_id)
        root = self.folders.root(pod.id)
        variables = environment(
            pod,
            self.images,
            self.ssh_keys,
            volume=volume,
            root=root,
            temporary=self.folders.temporary(pod.id),
        )
        mount = pod.order.mount_path
        command = [mapped(word, mount, volume) for word in command_of(pod.order.args)]
        pod.log.add("system", f"start container, boot {pod.boots}")
        pod.container = self.container(command, variables, root, pod.log.add)
