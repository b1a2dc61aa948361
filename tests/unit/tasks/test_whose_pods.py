from datetime import UTC, datetime
from uuid import uuid4

import pytest

from blocks.cloud import Pod
from tasks import whose_pods
from tasks.whose_pods import is_foreign
from tests.prefect_stand_in import stand_in

RUN = str(uuid4())


def _pod(run: str = RUN, installation: str = "") -> Pod:
    return Pod(
        "p", f"axr-{run}", "vast", datetime(2026, 1, 1, tzinfo=UTC), 1.0, installation=installation
    )


@pytest.mark.parametrize(
    ("pod", "known", "foreign"),
    [
        (_pod(installation="theirs"), False, True),
        (_pod(installation="theirs"), True, False),
        (_pod(installation="ours"), False, False),
        (_pod(), False, False),
        (_pod("demo"), False, True),
        (_pod(RUN.upper()), False, True),
    ],
)
def test_whose_a_pod_is(pod: Pod, known: bool, foreign: bool) -> None:
    """What this server knows is ours; what says nothing is ours too, if it is named like a run."""
    assert is_foreign(pod, run_is_known=known, own="ours") is foreign


def test_an_installation_has_one_id_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept by its server, for every process."""
    server = stand_in(monkeypatch)
    whose_pods._of.cache_clear()
    first = whose_pods.installation_id()
    whose_pods._of.cache_clear()
    assert whose_pods.installation_id() == first == server.variables[whose_pods.VARIABLE]
    whose_pods._of.cache_clear()
