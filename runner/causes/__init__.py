"""Every class of failure, in the order in which they are tried; the first that fits counts.

CAUSES are those of a training, PODS those of a machine that was not had or did not come up.
"""

from __future__ import annotations

from runner.causes.cause import Cause
from runner.causes.hub import HUB
from runner.causes.machine import MACHINE
from runner.causes.pods import PODS
from runner.causes.processes import PROCESSES
from runner.causes.task_file import DATA, PACKAGES, TASK_FILE

__all__ = ["CAUSES", "PODS", "UNKNOWN", "Cause"]

CAUSES: tuple[Cause, ...] = (*MACHINE, *TASK_FILE, *HUB, *PACKAGES, *DATA, *PROCESSES)
UNKNOWN = Cause(
    "unknown",
    "Read the lines above and the full log: `axolotl-runner logs RUN`.",
)
