"""Everything that can end or delay a run, named by the decision it causes.

RunnerError
├── RunEnded                 the run has its outcome; never retried
│   ├── ConfigError          the task file is wrong: say where, rent nothing
│   ├── NoCapacity           no cloud had a machine within the limits
│   ├── OutOfFunds           the cloud refuses for want of money
│   ├── KeyRefused           the cloud refuses our key
│   ├── HandedOn             other runs do what it was to do
│   └── TrainingFailed       the trainer's verdict, carrying its own outcome
├── CreateFailed             a create call failed and may have left a pod: look it up, end it
├── PodLost                  the pod is confirmed gone: a new pod, a checkpoint from the store
└── TryAgain                 the other side is away or busy: retry, nothing is decided

`outcome` is the word of report.json; the Prefect state's name is its CamelCase.
"""

from __future__ import annotations

from typing import Literal, get_args

Outcome = Literal[
    "completed",
    "loss_spike",
    "nonfinite",
    "collapse",
    "out_of_memory",
    "hang",
    "preempted",
    "budget",
    "deadline",
    "no_capacity",
    "config_error",
    "crash",
    "cancelled",
]


class RunnerError(Exception):
    """Base of all errors of this project."""


class RunEnded(RunnerError):
    """The run is over with this outcome; the message is the one-line reason."""

    outcome: Outcome = "crash"


class ConfigError(RunEnded):
    """The task file is wrong; the message says what, where and what to do."""

    outcome: Outcome = "config_error"


class NoCapacity(RunEnded):
    """No cloud in the list has a machine within the limits of the task file."""

    outcome: Outcome = "no_capacity"


class OutOfFunds(RunEnded):
    """The cloud refuses to rent for want of money."""

    outcome: Outcome = "no_capacity"


class KeyRefused(RunEnded):
    """The cloud refuses our key."""

    outcome: Outcome = "config_error"


class HandedOn(RunEnded):
    """The run trains nothing itself: it has started others that do."""

    outcome: Outcome = "completed"


class TrainingFailed(RunEnded):
    """The trainer's verdict was bad and no rung is left."""

    def __init__(self, outcome: Outcome, reason: str) -> None:
        super().__init__(reason)
        self.outcome = outcome


class CreateFailed(RunnerError):
    """A create call failed; `pod_id` is what it may have left behind nevertheless."""

    def __init__(self, message: str, pod_id: str | None = None) -> None:
        super().__init__(message)
        self.pod_id = pod_id


class PodLost(RunnerError):
    """The pod is confirmed gone: a successful listing does not hold it."""


class TryAgain(RunnerError):
    """The other side is away or busy; nothing is decided yet."""

    def __init__(self, message: str, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after


def outcome_of(name: str | None) -> Outcome:
    """The outcome that a failed state's name says; a crash for any other name."""
    found = [outcome for outcome in get_args(Outcome) if state_name(outcome) == name]
    return next((outcome for outcome in found if outcome != "completed"), "crash")


def state_name(outcome: Outcome) -> str:
    """The Prefect state name of an outcome: `loss_spike` is `LossSpike`."""
    return "".join(word.capitalize() for word in outcome.split("_"))
