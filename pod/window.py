"""Which steps a post-mortem looks at, from the events; no torch in here."""

from __future__ import annotations

from dataclasses import dataclass

from pod.events import Event


@dataclass(frozen=True)
class Window:
    """Steps first..last of attempt `of_attempt`, which raised its alarm at `alarm_step`.

    `lr` is the rate at the first step, `grad_norm` the highest in the window; None if not logged.
    """

    of_attempt: int
    first: int
    last: int
    alarm_step: int
    lr: float | None = None
    grad_norm: float | None = None


@dataclass(frozen=True)
class Row:
    """A row of the data set that `step` trained; `loss` is None where it could not be told."""

    step: int
    index: int
    loss: float | None
    text: str
    tokens: int | None


def window_of(events: list[Event], *, attempt: int) -> Window | None:
    """Return the steps around the attempt's alarm, None when it had none.

    It begins one step before the onset: a loss is computed before its step changes the weights,
    so the first bad loss may be the work of the step before.
    """
    own = [event for event in events if event["attempt"] == attempt]
    alarm = next((event for event in own if event["kind"] == "alarm"), None)
    if alarm is None:
        return None
    first, last = max(1, alarm["onset_step"] - 1), alarm["step"]
    steps = [event for event in own if event["kind"] == "step"]
    rates = [event["lr"] for event in steps if event["step"] >= first and event.get("lr")]
    norms = [
        event["grad_norm"]
        for event in steps
        if event["step"] >= first and event.get("grad_norm") is not None
    ]
    return Window(
        of_attempt=attempt,
        first=first,
        last=last,
        alarm_step=alarm["step"],
        lr=rates[0] if rates else None,
        # NaN compares with nothing: as a key it counts as the highest.
        grad_norm=max(norms, key=lambda norm: (norm != norm, norm), default=None),
    )
