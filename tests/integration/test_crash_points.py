"""Some points of the crash sweep (benchmarks/crashes.py has all of them): a run whose parent is
killed, or not answered, at the calls where most can go wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.crash_points import Rigs
from benchmarks.crashes import problem_of

pytestmark = pytest.mark.integration

# By the call to the cloud that is spoilt: its method, the first or last of the run, and how.
POINTS = [
    ("runpod", "POST /v2/pods", "lost"),
    ("runpod", "POST /v2/pods", "dies-after"),
    ("runpod", "DELETE", "dies-before"),
    ("vast", "PUT /api/v0/asks/", "dies-after"),
    ("vast", "DELETE", "no-key"),
]


@pytest.fixture(scope="module")
def rigs() -> Iterator[Rigs]:
    """One process for all points."""
    made = Rigs()
    yield made
    made.close()


@pytest.fixture(scope="module")
def unspoilt(rigs: Rigs) -> dict[str, dict[str, Any]]:
    """A run on each cloud that meets nothing."""
    return {cloud: rigs.do(f"{cloud}-plain-none", lambda _: None) for cloud in ("runpod", "vast")}


def test_a_run_that_meets_nothing_completes(unspoilt: dict[str, dict[str, Any]]) -> None:
    """With one pod, one life and a published model: else the points below would prove nothing."""
    for cloud, run in unspoilt.items():
        assert problem_of(cloud, run) is None
        assert (run["pods"], run["published"], run["reached"]) == (1, True, False)


@pytest.mark.parametrize(("cloud", "call", "mode"), POINTS)
def test_no_pod_is_left_and_no_model_lost(
    rigs: Rigs, unspoilt: dict[str, dict[str, Any]], cloud: str, call: str, mode: str
) -> None:
    """And at no time has the run two pods."""
    said = unspoilt[cloud]["said"]
    n = next(number for number, what in enumerate(said, 1) if what.startswith(call))
    name = f"{cloud}-plain-cloud-{mode}-{n:03}"
    run = rigs.do(name, lambda _: None)
    assert run["reached"]
    assert problem_of(name, run) is None
    assert run["published"]
