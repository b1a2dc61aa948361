"""Opening and leaving a W&B run within a time limit, whatever its service does.

The only place that imports wandb: late, since it takes more than a second, and never where it is
not asked for. Used on the control side and in the trainer, so it needs nothing but wandb.

When the service refuses the run (a deleted id is refused for ever) or does not answer, the run is
written offline instead; when even that fails, a run that swallows everything takes its place, so
that no callback of anybody has to know. Nothing here raises but ImportError.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")

# Waiting is paid for on a pod. Seen with a service that does not answer: an error within 15 s of
# init_timeout.
OPENS_WITHIN = 45.0
GIVES_UP_WITHIN = 75.0
LEAVES_WITHIN = 40.0  # less than the trainer's grace after its last word


@dataclass(frozen=True)
class Opened:
    """A W&B run that can be written to; `trouble` says why it is not as it was wanted."""

    run: Any
    mode: str
    trouble: str = ""

    @property
    def url(self) -> str:
        """Where it is shown; empty offline."""
        return str(self.run.url or "") if self.mode == "shared" else ""

    def leave(self, exit_code: int, within: float = LEAVES_WITHIN) -> bool:
        """Send what is left and close it; False when that took too long and was given up."""
        try:
            bounded(lambda: self.run.finish(exit_code=exit_code), within)
        except Exception:  # it is wandb's last word, and no run depends on it
            return False
        return True


def open_wandb(settings: dict[str, Any], **arguments: Any) -> Opened:
    """Open the run of these settings (fields of wandb.Settings, with `mode`), as the process's own.

    ImportError where there is no wandb.
    """
    import wandb

    limits = {"init_timeout": OPENS_WITHIN, "finish_timeout": LEAVES_WITHIN - 5}
    troubles: list[str] = []
    for mode in dict.fromkeys((settings["mode"], "offline", "disabled")):
        # A failed start leaves the id in use in wandb's own service process.
        chosen = {**limits, **settings, "mode": mode}
        try:
            run = bounded(
                lambda chosen=chosen: wandb.init(settings=wandb.Settings(**chosen), **arguments),  # type: ignore[misc]
                GIVES_UP_WITHIN,
            )
        except Exception as refused:
            troubles.append(f"{type(refused).__name__}: {refused}")
            _tear_down(wandb)
            continue
        return Opened(run, mode, "; ".join(troubles))
    raise AssertionError("a disabled run always opens")


def bounded(call: Callable[[], T], seconds: float) -> T:
    """What `call` returns or raises; TimeoutError after so many seconds, and it is left alone."""
    done: list[T] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            done.append(call())
        except BaseException as error:
            failed.append(error)

    worker = threading.Thread(target=work, daemon=True, name="wandb")
    worker.start()
    worker.join(seconds)
    if failed:
        raise failed[0]
    if not done:
        raise TimeoutError(f"no answer within {seconds:g} s")
    return done[0]


def _tear_down(wandb: Any) -> None:
    try:
        bounded(lambda: wandb.teardown(1), LEAVES_WITHIN)
    except Exception:
        return  # what comes next shows whether it matters
