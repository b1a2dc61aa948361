"""The limits of the whole installation, as its owner writes them into the Prefect variable.

    axr_limits = {"pods": 4, "dollars_per_day": null}

`pods` may live at once, over all clouds; `dollars_per_day` may be spent between two midnights of
UTC, in USD. null is no limit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from runner.errors import ConfigError
from runner.values import found, plain_number

VARIABLE = "axr_limits"
DEFAULT_PODS = 4


@dataclass(frozen=True)
class InstallationLimits:
    """`pods` at once and USD per day (UTC); None is no limit."""

    pods: int | None = DEFAULT_PODS
    dollars_per_day: float | None = None

    def as_variable(self) -> dict[str, object]:
        """As the variable holds it."""
        return {"pods": self.pods, "dollars_per_day": self.dollars_per_day}


def read_limits(value: object) -> InstallationLimits:
    """The limits of the variable's value, None of a missing one: the defaults. A key that is
    missing has its default, too.

    ConfigError when it can't be read: nothing is rented on a limit that was misunderstood.
    """
    if value is None:
        return InstallationLimits()
    if isinstance(value, str):
        value = _parsed(value)
    if not isinstance(value, Mapping):
        raise _wrong(f"found {found(value)}")
    strange = sorted(set(value) - {"pods", "dollars_per_day"})
    if strange:
        raise _wrong(f"found the key {strange[0]!r}")
    pods = _limit(value, "pods", DEFAULT_PODS)
    if pods is not None and pods != int(pods):
        raise _wrong(f"found {found(value['pods'])} as pods")
    dollars = _limit(value, "dollars_per_day", None)
    return InstallationLimits(None if pods is None else int(pods), dollars)


def _limit(value: Mapping[str, object], key: str, default: float | None) -> float | None:
    given = value.get(key, default)
    if given is None:
        return None
    number = plain_number(given)
    if number is None or number < 0:
        raise _wrong(f"found {found(given)} as {key}")
    return number


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        raise _wrong(f"found {found(text)}") from None


def _wrong(what: str) -> ConfigError:
    expected = json.dumps(InstallationLimits().as_variable())
    return ConfigError(
        f"the Prefect variable {VARIABLE}: expected such as {expected}, {what}: correct it in the "
        "UI under Variables"
    )
