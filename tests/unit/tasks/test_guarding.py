from pathlib import Path
from typing import Any

import pytest

from pod.marks import marks_of
from runner.errors import TrainingFailed
from tasks.guarding import PROOF_WITHIN, REFUSED_FOR, must_be_guarded


class Waiting:
    """A pod, and a clock on which the guard writes its mark after some time."""

    def __init__(self, folder: Path, cloud: str = "vast") -> None:
        self.environment = {"AXR_CLOUD": cloud, "AXR_POD": "7", "AXR_VOLUME": str(folder)}
        self.marks = marks_of(self.environment)
        self.now = 0.0
        self.later: list[tuple[float, dict[str, Any]]] = []

    def check(self) -> None:
        """What the flows on the pod do."""
        must_be_guarded(self.environment, clock=lambda: self.now, sleep=self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds
        while self.later and self.later[0][0] <= self.now:
            self.marks.write("access", **self.later.pop(0)[1])


@pytest.fixture
def pod(tmp_path: Path) -> Waiting:
    return Waiting(tmp_path)


def test_a_proof_lets_a_training_start(pod: Waiting) -> None:
    """At once when it is there, else as soon as it comes; an API that was away is no refusal."""
    pod.later = [
        (2.0, {"state": "unknown", "why": "GET 503, PUT 503"}),
        (9.0, {"state": "refused", "why": "GET 403, PUT 403"}),
        (20.0, {"state": "proved", "why": "GET 403, PUT 200"}),
    ]
    pod.check()
    assert pod.now == 20.0
    pod.check()
    assert pod.now == 20.0


def test_a_refused_key_is_said_in_one_clear_message(pod: Waiting) -> None:
    """Nothing is trained on a pod that could not end itself."""
    pod.marks.write("access", state="refused", why="GET 403, PUT 403")
    with pytest.raises(
        TrainingFailed, match=r"could not end itself.*vast.*refused \(GET 403"
    ) as no:
        pod.check()
    assert pod.now == pytest.approx(REFUSED_FOR, abs=1)
    assert no.value.outcome == "crash"


@pytest.mark.parametrize(
    ("mark", "word"),
    [({"state": "unknown", "why": "REST 503"}, "REST 503"), (None, "has not asked yet")],
)
def test_without_a_proof_in_time_nothing_starts(
    pod: Waiting, mark: dict[str, str] | None, word: str
) -> None:
    """H21, H56: the wait is bounded, and says what was answered last."""
    if mark:
        pod.marks.write("access", **mark)
    with pytest.raises(TrainingFailed, match=word):
        pod.check()
    assert pod.now == pytest.approx(PROOF_WITHIN, abs=1)


def test_a_local_pod_needs_no_proof(tmp_path: Path) -> None:
    """It ends by signals."""
    pod = Waiting(tmp_path, cloud="local")
    pod.check()
    assert pod.now == 0.0


@pytest.mark.parametrize(
    ("why", "outcome"), [("budget", "budget"), ("stop_after", "deadline"), ("lease", "crash")]
)
def test_nothing_starts_on_a_pod_that_is_over(tmp_path: Path, why: str, outcome: str) -> None:
    """H17: not on one that is only kept for the sake of its model either."""
    pod = Waiting(tmp_path, cloud="local")
    pod.marks.write("ended", why=why, t=1.0)
    with pytest.raises(TrainingFailed, match=why) as no:
        pod.check()
    assert no.value.outcome == outcome
