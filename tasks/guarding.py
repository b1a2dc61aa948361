"""Before a training starts on a pod: is the pod's dead-man switch in order, and may it live?"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

from blocks.clouds import is_rented
from pod.marks import marks_of
from runner.errors import Outcome, TrainingFailed

PROOF_WITHIN = 180.0  # the guard asks every 5 s
REFUSED_FOR = 30.0  # a new key may take a moment to be known everywhere
LOOK_EVERY = 0.5

OUTCOMES: dict[str, Outcome] = {
    "budget": "budget",
    "deadline": "deadline",
    "stop_after": "deadline",
    "terminate_after": "deadline",
}


def must_be_guarded(
    environment: Mapping[str, str] = os.environ,
    *,
    within: float = PROOF_WITHIN,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return once this pod's guard has proved that it can end the pod; at once on a local pod.

    Raises TrainingFailed when the cloud refuses the pod's key, when there is no proof after
    `within` seconds, or when the guard has already said that the pod is over.
    """
    if "AXR_POD" not in environment:  # boot.sh sees to it: a trainer that is started by hand
        return
    marks = marks_of(environment)
    over = marks.read("ended")
    if over is not None:
        why = str(over.get("why"))
        raise TrainingFailed(OUTCOMES.get(why, "crash"), f"nothing may start here any more: {why}")
    cloud = environment.get("AXR_CLOUD", "")
    if not is_rented(cloud):
        return
    began = clock()
    while True:
        proof = marks.read("access") or {"state": "unknown", "why": "its guard has not asked yet"}
        if proof.get("state") == "proved":
            return
        refused = proof.get("state") == "refused"
        if clock() >= began + (min(REFUSED_FOR, within) if refused else within):
            raise TrainingFailed("crash", _words(cloud, refused, str(proof.get("why")), within))
        sleep(LOOK_EVERY)


def _words(cloud: str, refused: bool, why: str, within: float) -> str:
    what = "is refused" if refused else f"could not be proved within {within:.0f} s"
    return (
        f"the pod could not end itself, so nothing is trained on it: access to the API of {cloud} "
        f"with the pod's own key {what} ({why})"
    )
