"""One point of the sweep: a run whose parent meets one fault, is revived, and comes to its end.

`python -m benchmarks.crash_rig` is a process that does points: a name a line in, a result a line
out. The parent is the real one (`to_its_end` with finetune's steps); what happens to a flow run
around it (worker, engine, keeper's revival, the sweep each minute) is played here, in virtual time.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import ssl
import sys
import tempfile
import time
from contextvars import Context
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import urlsplit
from uuid import UUID

from benchmarks.crash_faults import Killed, Wire
from benchmarks.crash_points import Point
from benchmarks.crash_server import (
    new_run,
    prefect_server,
    set_state,
    set_sweep,
    state_of,
    sweep_is_on,
)
from runner.home import home

Result = dict[str, Any]

KEY = {"runpod": "rpa_emulator", "vast": "vast_emulator"}
REVIVES_EVERY, SWEEPS_EVERY = 5.0, 60.0
BUSY = 0.1  # real seconds
WITHIN = 4 * 3600.0  # virtual seconds until everything must be over


class Rig:
    """The server, both clouds and the wire of this process."""

    def __init__(self, api_url: str) -> None:
        os.environ["PREFECT_API_URL"] = api_url
        # What is imported from here on sees the environment above.
        import flows.finetune
        import flows.sweep
        import tasks.check
        import tasks.waiting
        from benchmarks.crash_clock import VirtualTime
        from benchmarks.crash_world import World, emulated
        from tests.emulators.clock import Clock

        self._flows = flows
        logging.disable(logging.CRITICAL)
        # No TLS here, and reading the certificates takes longer than a run.
        ssl.SSLContext.load_verify_locations = lambda *_, **__: None  # type: ignore
        clock = Clock()
        self.time = VirtualTime(clock, self._after_sleep)
        self.worlds = {name: World(name, emulated(name, clock), clock.now) for name in KEY}
        urls = {name: world.emulator.url for name, world in self.worlds.items()}
        ports = {urlsplit(url).port or 0: "cloud" for url in urls.values()}
        ports[urlsplit(api_url).port or 0] = "api"
        for name, url in urls.items():
            os.environ[f"AXR_{name.upper()}_URL"] = url
            os.environ[f"{name.upper()}_API_KEY"] = KEY[name]
        self.wire = Wire(ports, clock.now)
        self.wire.attach()
        self.time.install()
        self.world = self.worlds["runpod"]
        tasks.check.look = lambda run, order: None  # what would be trained is not there
        tasks.waiting.worker_is_online = lambda pod: self.world.worker_is_online(pod)
        self._swept_at = 0.0
        self._sweeping = self._turning = False
        self._troubles: list[str] = []
        self._deaths: list[str] = []

    def close(self) -> None:
        """End the emulators."""
        for world in self.worlds.values():
            world.emulator.close()

    def do(self, name: str) -> Result:
        """One run to its end, and what is left then."""
        from prefect.states import Cancelling

        began = time.monotonic()
        point = Point.of(name)
        self._troubles, self._deaths = [], []
        self.world = self.worlds[point.cloud]
        set_sweep(active=False)
        run = new_run(point.task_file)
        self.world.begin(run, kill_at_step="train" if point.story == "lost" else None)
        self.wire.begin(point.fault)
        self.wire.cancel = lambda: set_state(run, Cancelling())
        lives = self._to_the_end(run)
        report = self._report(run)
        result = {
            "reached": self.wire.struck,
            "state": state_of(run),
            "outcome": report.get("outcome"),
            "reason": report.get("reason"),
            "lives": lives,
            "left": len(self.world.left()),
            "at_once": self.world.most_at_once(),
            "pods": len(list(self.world.history())),
            "model_kept": self.world.is_model_kept,
            "published": bool(self.world.hub),
            "calls": dict(self.wire.calls) if point.fault is None else None,
            "said": list(self.wire.said) if point.fault is None else None,
            "troubles": self._troubles or None,
            "deaths": self._deaths or None,
            "seconds": round(time.monotonic() - began, 2),
        }
        self._clean_up()
        return result

    def _to_the_end(self, run: str) -> int:
        """Lives of the parent until the run has ended and nothing is left, or for too long."""
        lives = 0
        began = self.time.time()
        while self.time.time() < began + WITHIN:
            state = state_of(run)
            if state == "SCHEDULED":
                lives += 1
                self._live(run)
                continue
            if state in ("COMPLETED", "FAILED", "CANCELLED") and not self.world.left():
                return lives
            self.time.sleep(REVIVES_EVERY)
            self._keeper_revives()
        return lives

    def _live(self, run: str) -> None:
        """As worker and engine do: Running, the flow, its state; a killed one says nothing."""
        from prefect.exceptions import TerminationSignal
        from prefect.states import Crashed, Failed, Running

        from blocks.runpod import account as runpod
        from blocks.vast import account as vast
        from tasks.ending import to_its_end

        for cached in (runpod.runpod_account, runpod.runpod_cloud, vast.vast_account,
                       vast.vast_cloud):  # fmt: skip
            cached.cache_clear()
        set_state(run, Running())
        try:
            with self.wire.life():
                state = Context().run(to_its_end, run, self._flows.finetune.steps)
        except Killed:
            return
        except TerminationSignal:
            state = self._end_cancelled(run)
        except Exception as error:
            self._troubles.append(f"the flow failed: {type(error).__name__}: {error}"[:300])
            state = Failed(message=repr(error))
        except SystemExit:  # this process is told to end
            raise
        except BaseException as error:
            self._deaths.append(f"{type(error).__name__}: {error}"[:300])
            state = Crashed(message=repr(error))
        set_state(run, state)

    def _end_cancelled(self, run: str) -> Any:
        """As a worker does after a flow that was cancelled: its hook, then its state."""
        from prefect.states import Cancelled

        from tasks.api import api

        flow: Any = self._flows.finetune.finetune
        state: Any = Cancelled()
        with self.wire.spoken_by("keeper"):
            Context().run(
                self._flows.finetune.finish_cancelled, flow, api().read_flow_run(UUID(run)), state
            )
        return state

    def _after_sleep(self) -> None:
        """While anybody sleeps the pods go on, and each minute the sweep looks at them."""
        if self._turning:  # the world itself waits for a server that is busy
            time.sleep(BUSY)
            return
        self._turning = True
        try:
            with self.wire.spoken_by(""):
                self.world.turn()
                due = self.time.time() >= self._swept_at + SWEEPS_EVERY
                if not due or self._sweeping or not sweep_is_on():
                    return
        finally:
            self._turning = False
        self._swept_at = self.time.time()
        self._sweeping = True
        try:
            with self.wire.spoken_by("keeper"):
                Context().run(self._flows.sweep.sweep.fn)
        except Exception as error:
            if not self.wire.fault or self.wire.fault.mode != "away":
                self._troubles.append(f"the sweep failed: {type(error).__name__}: {error}"[:300])
        finally:
            self._sweeping = False

    def _keeper_revives(self) -> None:
        import httpx
        from prefect.exceptions import PrefectHTTPStatusError

        from deployments.revive import revive_parents

        try:
            with self.wire.spoken_by("keeper"):
                Context().run(revive_parents)
        except (httpx.HTTPError, PrefectHTTPStatusError):
            return

    def _report(self, run: str) -> Result:
        path = home().run(run) / "report.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def _clean_up(self) -> None:
        """A pod that was left must not be met by the next point; nobody reads old requests."""
        for pod in self.world.left():
            self.world.kill(pod)
        self.world.emulator._requests.clear()


def serve(names: TextIO, answers: TextIO) -> None:
    """Do a point for each line, until there are no more."""
    with tempfile.TemporaryDirectory(prefix="axr-crash-") as folder:
        os.environ.update(
            AXR_HOME=folder,
            PREFECT_HOME=f"{folder}/prefect",
            PREFECT_LOGGING_TO_API_ENABLED="false",
            AXR_GATEWAY_LOCAL="http://127.0.0.1:9",
            DO_NOT_TRACK="1",
        )
        with prefect_server(Path(folder)) as url:
            rig = Rig(url)
            try:
                for name in names:
                    print(json.dumps(rig.do(name.strip())), file=answers, flush=True)
            finally:
                rig.close()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server ends too
    words = sys.stdout
    sys.stdout = sys.stderr  # what a library prints is no answer
    serve(sys.stdin, words)
