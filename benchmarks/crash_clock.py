"""Time that passes only when the control logic sleeps: a night of waiting takes a second.

`install` replaces sleep, the clocks and `datetime.now` in all of our modules that are loaded, in
default arguments too, and where Prefect's client and task engine wait. It can't be undone: a
process that has called it is for nothing else.
"""

from __future__ import annotations

import importlib
import sys
import time
import types
from collections.abc import Callable
from datetime import datetime, tzinfo
from typing import Any

from tests.emulators.clock import Clock

OURS = ("blocks", "deployments", "flows", "pod", "runner", "tasks")
# Where Prefect waits before it asks again: its client after an answer that is none, its tasks.
PREFECT = ("prefect.client.base", "prefect.task_engine", "prefect.deployments.flow_runs")


class VirtualTime:
    """Real time plus what was slept; `after_sleep` lets the rest of the world go on."""

    def __init__(self, clock: Clock, after_sleep: Callable[[], None]) -> None:
        self._clock = clock
        self._after_sleep = after_sleep
        self._skipped = 0.0

    def time(self) -> float:
        """Seconds since the epoch."""
        return self._clock.now()

    def monotonic(self) -> float:
        """As time.monotonic."""
        return time.monotonic() + self._skipped

    def sleep(self, seconds: float) -> None:
        """Skip so many seconds."""
        if seconds > 0:
            self._skipped += seconds
            self._clock.advance(seconds)
        self._after_sleep()

    def install(self) -> None:
        """From now on this process lives in this time."""
        for name in PREFECT:
            importlib.import_module(name)  # it comes late by itself
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] in OURS or name in PREFECT:
                self._install_in(module)

    def _install_in(self, module: types.ModuleType) -> None:
        new = self._replacements()
        for name, value in list(vars(module).items()):
            if id(value) in new:
                setattr(module, name, new[id(value)])
            elif getattr(value, "__module__", None) == module.__name__:
                for function in _functions(value):
                    _replace_defaults(function, new)

    def _replacements(self) -> dict[int, Any]:
        module = types.ModuleType("time")
        vars(module).update(vars(time))
        vars(module).update(time=self.time, monotonic=self.monotonic, sleep=self.sleep)
        return {
            id(time): module,
            id(time.time): self.time,
            id(time.monotonic): self.monotonic,
            id(time.sleep): self.sleep,
            id(datetime): _datetime(self.time),
        }


def _functions(value: object) -> list[types.FunctionType]:
    """The function itself; of a class, or what wraps a function, those in it."""
    if isinstance(value, types.FunctionType):
        return [value]
    inside = vars(value).values() if isinstance(value, type) else [getattr(value, "fn", None)]
    return [each for each in inside if isinstance(each, types.FunctionType)]


def _replace_defaults(function: types.FunctionType, new: dict[int, Any]) -> None:
    if function.__defaults__:
        function.__defaults__ = tuple(new.get(id(each), each) for each in function.__defaults__)
    given = function.__kwdefaults__ or {}
    for name, value in given.items():
        given[name] = new.get(id(value), value)


def _datetime(now: Callable[[], float]) -> type[datetime]:
    class Kind(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, datetime)

    class Virtual(datetime, metaclass=Kind):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.fromtimestamp(now(), tz)

    return Virtual
