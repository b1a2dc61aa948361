"""The whole emulator: for tests of this process a context manager, for others a server."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.emulators.calls import Answer, Call
from tests.emulators.clock import Clock, write_time
from tests.emulators.folders import Folders
from tests.emulators.images import Images, default_images
from tests.emulators.runpod.account import Account
from tests.emulators.runpod.contract import Contract, default_spec
from tests.emulators.runpod.faults import Faults
from tests.emulators.runpod.lifecycle import Host
from tests.emulators.runpod.pods import Pod
from tests.emulators.runpod.server import LIMITS, answer
from tests.emulators.server import Server

KEY = "rpa_emulator"
TICK_S = 0.03


class Emulator:
    """RunPod on a port of this machine; `close` (or leaving the block) ends all pods.

    `spec` None means the default one if it is there; `credit` in USD.
    """

    headers: Mapping[str, str] = LIMITS

    def __init__(
        self,
        port: int = 0,
        *,
        home: Path | None = None,
        key: str = KEY,
        spec: Path | None = None,
        images: Images | None = None,
        clock: Clock | None = None,
        credit: float = 100.0,
    ) -> None:
        self.clock = clock or Clock()
        self.faults = Faults()
        self.contract = Contract.of(spec or default_spec())
        self.folders = Folders.at(home, variable="RUNPOD_POD_ID", prefix="rp")
        host = Host(
            self.clock, self.faults, self.folders, default_images() if images is None else images
        )
        self.account = Account(host, key, credit)
        self.key = key
        self._requests: list[dict[str, Any]] = []
        self._violations: list[dict[str, Any]] = []
        self._server = Server(port, self)
        self._closing = threading.Event()
        # The poll interval is how long shutdown takes.
        serve = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._threads = [serve, threading.Thread(target=self._tick, daemon=True)]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Emulator:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        return self._closing.is_set()

    @property
    def origin(self) -> str:
        """What stands for https://api.runpod.io: RUNPOD_API_BASE_URL of the SDK."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def url(self) -> str:
        """The base of REST v2: AXR_RUNPOD_URL."""
        return f"{self.origin}/v2"

    @property
    def state(self) -> dict[str, Any]:
        """As GET /_state has it."""
        account = self.account
        with account.lock:
            return {
                "pods": [self._shown(pod) for pod in account.pods.values()],
                "ended": [self._shown(pod) for pod in account.ended],
                "requests": list(self._requests),
                "violations": list(self._violations),
                "created_total": len(account.pods) + len(account.ended),
                "bill": {
                    pod: float(meter.total(self.clock.now())) for pod, meter in account.meters()
                },
                "balance": float(account.balance()),
                "validated": self.contract.on,
            }

    def set(self, **switches: Any) -> None:
        """Set switches and do actions, as POST /_faults; ValueError for unknown ones."""
        for action, value in self.faults.merge(switches).items():
            self.account.do(action, value)

    def advance(self, seconds: float = 0.0) -> None:
        """Skip time, and let happen what is due by then."""
        self.clock.advance(seconds)
        self.account.advance()

    def lines(self, pod_id: str, source: str = "container") -> list[str]:
        """What a pod, living or ended, has said."""
        account = self.account
        found = next(pod for pod in [*account.pods.values(), *account.ended] if pod.id == pod_id)
        return found.log.texts(source)

    def close(self) -> None:
        """No more calls, no more pods; folders that are ours go."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        for thread in self._threads:
            thread.join()
        self.account.close()
        self.folders.close()

    # ---- for the server -----------------------------------------------------------------------

    def answer(self, call: Call) -> Answer:
        """The answer to a call of the API; may raise Dropped."""
        return answer(self, call)

    def control(self, call: Call) -> Answer:
        """GET /_state, GET or POST /_faults, POST /_clock {"advance": seconds}."""
        try:
            match call.method, call.path:
                case "GET", "/_state":
                    return Answer(200, self.state)
                case "POST", "/_faults":
                    self.set(**(call.body or {}))
                    return Answer(200, self.faults.as_dict())
                case "GET", "/_faults":
                    return Answer(200, self.faults.as_dict())
                case "POST", "/_clock":
                    self.advance(float(call.body["advance"]))
                    return Answer(200, {"now": write_time(self.clock.now())})
        except (ValueError, KeyError, TypeError) as error:
            return Answer(400, {"error": repr(error)})
        return Answer(404, {"error": f"no {call.method} {call.path}"})

    @contextlib.contextmanager
    def recorded(self, call: Call) -> Iterator[dict[str, Any]]:
        """An entry of `requests`, there from the start; its status stays None when dropped.

        `caller` is "account", the id of the pod whose key it was, or None.
        """
        key = call.headers.get("authorization", "").removeprefix("Bearer ")
        entry = {
            "method": call.method,
            "path": call.path,
            "query": dict(call.query),
            "status": None,
            "t": self.clock.now(),
            "body": call.body,
            "caller": self.account.owner_of(key),
        }
        self._requests.append(entry)
        yield entry

    def violation(self, kind: str, call: Call, errors: list[str]) -> None:
        """`kind`: request, response, rule (what the schema cannot say) or emulator (a bug)."""
        self._violations.append(
            {"kind": kind, "method": call.method, "path": call.path, "errors": errors}
        )

    def _shown(self, pod: Pod) -> dict[str, Any]:
        shown = self.account.view(pod)
        if pod.ended is not None:
            shown |= {"status": "TERMINATED", "actions": [], "cost": 0.0}
            shown |= {"endedAt": write_time(pod.ended), "reason": pod.reason}
        return shown | {
            "key": pod.key,
            "boots": pod.boots,
            "pid": pod.container.pid if pod.container else None,
            "volume": str(self.folders.volume(pod.id, pod.order.volume_id)),
            "log": str(self.folders.log(pod.id)),
        }

    def _tick(self) -> None:
        while not self._closing.wait(TICK_S):
            try:
                self.account.advance()
            except Exception as error:  # one that does not die must not stop time for all
                self._violations.append({"kind": "emulator", "errors": [repr(error)]})
