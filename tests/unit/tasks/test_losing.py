from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from prefect.client.schemas.objects import FlowRun, State
from prefect.states import Completed, Crashed, Running

from blocks.cloud import Pod
from tasks.losing import is_on_another_pod

POD = Pod("new", "axr-run", "runpod", datetime(2026, 1, 1, tzinfo=UTC), 1.0)


@pytest.mark.parametrize(
    ("state", "began_on", "elsewhere"),
    [
        (Running(), "old", True),
        (Running(), "new", False),
        (Running(), None, False),
        (Completed(), "old", False),
        (Crashed(), "old", True),  # as the sweep leaves the children of lost pods
        (Crashed(), "new", False),
    ],
)
def test_an_attempt_that_was_on_a_lost_pod_is_not_begun_again_on_the_next(
    state: State[Any], began_on: str | None, elsewhere: bool
) -> None:
    """It would train from the start, as if nothing had been stored."""
    labels: dict[str, Any] = {"axr.pod": began_on} if began_on else {}
    child = FlowRun(id=uuid4(), flow_id=uuid4(), state=state, labels=labels)
    assert is_on_another_pod(child, POD) is elsewhere
