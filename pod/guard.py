"""The dead-man switch: ends this pod even if everything else is dead. Standard library only.

The first process of a pod; boot.sh starts it again whenever it ends, and of two one waits for the
other's end. It proves that it reaches the cloud's API (pod.access), then ends its own pod when

    deadline         AXR_DEADLINE has passed
    terminate_after  AXR_TERMINATE_AFTER seconds have passed since the pod's first start
    stop_after       AXR_STOP_AFTER seconds have
    budget           the run's money is used up, by the last word of the control side (pod.lease)
    finished         the model is published and nobody has ended the pod since; not with AXR_KEEP
    lease            the control side was not heard of for AXR_LEASE seconds and no trainer runs;
                     not with AXR_KEEP

In all of these the control side acts first, hence the graces. Before the end the trainer may save,
and on a rented pod what only this pod has goes to the store or the hub (pod.saving). Where that
fails the pod is kept until its deadline, and that is said loudly; then it ends, whatever is on it.

`python -m pod.guard --over` ends a pod that is over and returns on one that may live: what a
container that was started again asks first.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pod import trainer
from pod.access import Proof, prove
from pod.ending import end_this_pod, say
from pod.lease import from_facts, read_labels
from pod.marks import Marks, marks_of
from pod.reasons import LAST, Facts, Why, limits_of, why_end
from pod.rundir import RunDir
from pod.saving import save_only_copy, stop_trainer
from pod.sending import send_logs
from pod.telling import tell

RENTED = ("runpod", "vast")
LOOK_EVERY = 5.0  # seconds, also so that a stepped clock is noticed
ASK_EVERY = 30.0  # the lease
FIRST_ANSWER_WITHIN = 60.0  # a container that was away asks anew before it believes its notes
SAVE_WITHIN = 300.0  # as long as tasks.stopping gives it
RESCUE_WITHIN = 3600.0
LAST_RESCUE_WITHIN = 1800.0  # past the deadline
RESCUE_AGAIN_AFTER = 300.0
PROVE_AGAIN_AFTER = 5.0
ONLY_COPY = "axr.only_copy"  # the label of a step whose pod is kept for its model


class Guard:
    """One guard of one pod; everything that it does to the outside can be replaced."""

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        read: Callable[[Mapping[str, str]], dict[str, Any] | None] = read_labels,
        prove: Callable[[Mapping[str, str]], Proof] = prove,
        end: Callable[[Mapping[str, str]], None] = end_this_pod,
        stop: Callable[[RunDir, float], None] = stop_trainer,
        save: Callable[[RunDir, float], str] | None = None,
        tell: Callable[[Mapping[str, str], str, str], bool] = tell,
        send: Callable[[Mapping[str, str]], str | None] = send_logs,
        again: bool = False,
    ) -> None:
        self.environment = environment
        self.limits = limits_of(environment)
        self.marks: Marks = marks_of(environment)
        self.run = environment.get("AXR_RUN", "")
        # The real path: it is what the trainer's processes carry (tasks.pod_run).
        self.run_dir = RunDir((Path(environment["AXR_VOLUME"]) / self.run).resolve())
        self.again = again
        self._clock, self._sleep = clock, sleep
        self._read, self._prove, self._end, self._stop = read, prove, end, stop
        self._save, self._tell, self._send = save or self._save_only_copy, tell, send
        self._started = clock()
        self._heard = False
        self._lease = from_facts(self.marks.read("lease"), self._started)
        self._began = self.marks.began(self._started)
        self._asked_at = self._proved_at = self._rescued_at = float("-inf")
        self._proved = (self.marks.read("access") or {}).get("state") == "proved"

    def watch(self) -> None:
        """Guard until the pod has ended; a rented pod's machine is taken away meanwhile."""
        while not self.ended():
            self.wait()

    def wait(self) -> None:
        """Let some time pass until the next look."""
        self._sleep(min(LOOK_EVERY, self.limits.lease / 4))

    def ended(self) -> bool:
        """Look once, and end the pod if it must; True when that has been done."""
        self._prove_access()
        self._ask()
        why = self.why()
        if why in ("budget", "lease"):  # the newest word counts, not one of half a minute ago
            self._ask(at_once=True)
            why = self.why()
        if why is not None:
            return self._finish(why)
        if self._settled() and self.marks.read("ended") is not None:
            self.marks.remove("ended")
        return False

    def why(self) -> Why | None:
        """Why the pod must end, by what is known; nobody is asked."""
        now = self._clock()
        facts = Facts(
            began=self._began,
            lease=self._lease,
            training=self._trains(),
            finished=self._finished_at(now),
            heard=self._heard,
            settled=self._settled(),
            again=self.again,
        )
        return why_end(now, facts, self.limits)

    def _finish(self, why: Why) -> bool:
        now = self._clock()
        if now < self._rescued_at + RESCUE_AGAIN_AFTER and why not in LAST:
            return False
        say(f"the pod is over: {why}")
        self.marks.write("ended", why=why, t=now)
        try:
            self._stop(self.run_dir, SAVE_WITHIN)
        except Exception as error:  # whatever it is, the pod must end
            say(f"the trainer can't be stopped: {error!r}")
        if self.environment.get("AXR_CLOUD") in RENTED and not self._rescue(why):
            return False
        try:
            self._send(self.environment)
        except Exception as error:  # a log is not worth a pod that goes on
            say(f"the logs can't be sent: {error!r}")
        self._end(self.environment)
        return True

    def _rescue(self, why: Why) -> bool:
        """Whether the pod may end: what only it has is elsewhere, or it can't be kept longer."""
        try:
            where = self._save(self.run_dir, LAST_RESCUE_WITHIN if why in LAST else RESCUE_WITHIN)
        except Exception as failed:  # NotSaved mostly; whatever it is, the copy is still here
            return self._not_saved(why, str(failed) or repr(failed))
        if (self.marks.read("rescue") or {}).get("ok") is False:
            self._tell(self.environment, ONLY_COPY, "")
        self.marks.write("rescue", ok=True, why=where, t=self._clock())
        say(f"rescue: {where}")
        return True

    def _not_saved(self, why: Why, reason: str) -> bool:
        last = why in LAST
        self._rescued_at = self._clock()
        self.marks.write("rescue", ok=False, why=reason, t=self._rescued_at)
        until = datetime.fromtimestamp(self.limits.deadline, UTC).isoformat(timespec="minutes")
        loudly = "IT IS LOST NOW" if last else f"THE POD IS KEPT UNTIL ITS DEADLINE, {until}"
        words = f"THE ONLY COPY OF THE MODEL OF RUN {self.run} IS ON THIS POD. {loudly}: {reason}"
        say(words)
        self._tell(self.environment, ONLY_COPY, words)
        return last

    def _settled(self) -> bool:
        patience = min(FIRST_ANSWER_WITHIN, self.limits.lease)
        return self._clock() - self._started >= patience

    def _ask(self, *, at_once: bool = False) -> None:
        now = self._clock()
        every = min(ASK_EVERY, self.limits.lease / 3)
        if now < self._asked_at + every and not (at_once and now > self._asked_at):
            return
        self._asked_at = now
        labels = self._read(self.environment)
        if labels is None:
            return
        self._heard = True
        heard = self._lease.heard(labels, now)
        if heard != self._lease:
            self._lease = heard
            self.marks.write("lease", **heard.facts())

    def _prove_access(self) -> None:
        now = self._clock()
        if self._proved or now < self._proved_at + PROVE_AGAIN_AFTER:
            return
        self._proved_at = now
        try:
            proof = self._prove(self.environment)
        except Exception as error:  # an answer of a form that nobody has seen yet
            proof = Proof("unknown", repr(error))
        self._proved = proof.state == "proved"
        self.marks.write("access", state=proof.state, why=proof.why, t=now)
        say(f"access to the cloud's API {proof.state}: {proof.why}")

    def _trains(self) -> bool:
        try:
            return trainer.find(self.run_dir) is not None
        except (OSError, ValueError, KeyError):
            return False

    def _finished_at(self, now: float) -> float | None:
        try:
            # A network disk may have another clock.
            return min(now, self.run_dir.finished.stat().st_mtime)
        except OSError:
            return None

    def _save_only_copy(self, run_dir: RunDir, within: float) -> str:
        return save_only_copy(run_dir, self.run, self.environment, within=within)


def end_if_over(guard: Guard) -> None:
    """End the pod if it is over, or was when its container stopped; return if it may live."""
    if guard.marks.read("ended") is None and guard.why() is None:
        return
    while not guard.ended() and guard.marks.read("ended") is not None:
        guard.wait()


def main() -> None:
    """Guard the pod named in the environment."""
    parser = argparse.ArgumentParser(description="end this pod in time")
    parser.add_argument("--over", action="store_true", help="end it if it is over, else return")
    if parser.parse_args().over:
        end_if_over(Guard(os.environ, again=True))
        return
    _stand_apart()
    with _only_one(os.environ["AXR_POD"]):
        Guard(os.environ).watch()


def _stand_apart() -> None:
    """A session of its own; and the kernel, short of memory, shall take the trainer first."""
    with contextlib.suppress(OSError):
        os.setsid()
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("-900")


@contextlib.contextmanager
def _only_one(pod: str) -> Iterator[None]:
    """Of several guards of a pod the others wait here for the first one's end."""
    path = Path(tempfile.gettempdir()) / f"axr-guard-{pod}.lock"
    try:
        lock = path.open("w")
    except OSError:  # two guards are better than none
        yield
        return
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    main()
