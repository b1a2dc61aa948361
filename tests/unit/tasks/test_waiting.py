from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from blocks.cloud import Pod, PodPhase, PodStatus
from runner.errors import KeyRefused, PodLost, TrainingFailed, TryAgain
from tasks import waiting
from tasks.waiting import LIMITS, DidNotStart, wait_until_ready

CREATED = datetime(2026, 1, 1, tzinfo=UTC)
POD = Pod("p1", "axr-1", "runpod", CREATED, 1.0)


class Scripted:
    """A cloud that answers with one phase after the other, the last one for ever."""

    def __init__(self, *answers: PodPhase | Exception) -> None:
        self.answers: Iterator[PodPhase | Exception] = iter(answers)
        self.last: PodPhase | Exception = answers[0]

    def status(self, pod: Pod) -> PodStatus:
        """The next answer."""
        self.last = next(self.answers, self.last)
        if isinstance(self.last, Exception):
            raise self.last
        return PodStatus(self.last)


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a watcher was shown; each look is one at this pod alone."""
    seen: list[str] = []
    monkeypatch.setattr(waiting, "remember", lambda run, facts: seen.append(facts["stage"]))
    monkeypatch.setattr(waiting.shared_look, "is_rented", lambda name: False)
    return seen


def _wait(cloud: Scripted, *, online_after: float = 1e9) -> float:
    """Seconds until it was ready."""
    clock = [CREATED]

    def sleep(seconds: float) -> None:
        clock[0] += timedelta(seconds=seconds)

    def age() -> float:
        return (clock[0] - CREATED).total_seconds()

    wait_until_ready(
        cloud,  # type: ignore[arg-type]  # only `status` is asked
        POD,
        lambda pod: age() >= online_after,
        sleep=sleep,
        now=lambda: clock[0],
    )
    return age()


def test_it_waits_for_the_worker_and_shows_each_phase(stages: list[str]) -> None:
    """RUNNING is not ready: the code, the packages and the worker come after it."""
    phases = [PodPhase.QUEUED, PodPhase.QUEUED, PodPhase.STARTING, PodPhase.RUNNING]
    assert _wait(Scripted(*phases), online_after=60) == 60
    assert stages == ["queued on runpod", "fetching the image on runpod", "booting on runpod", ""]


@pytest.mark.parametrize("phase", [PodPhase.QUEUED, PodPhase.STARTING, PodPhase.RUNNING])
def test_each_phase_has_its_limit(stages: list[str], phase: PodPhase) -> None:
    """R6: a machine that never gets ready costs minutes, not a night."""
    with pytest.raises(DidNotStart, match=f"after {LIMITS[phase] / 60:.0f} minutes"):
        _wait(Scripted(phase))


def test_a_broken_or_vanished_machine_is_not_waited_for(stages: list[str]) -> None:
    """H23: noticed at the next look."""
    with pytest.raises(DidNotStart, match="broken"):
        _wait(Scripted(PodPhase.STARTING, PodPhase.BROKEN))
    with pytest.raises(DidNotStart, match="no longer"):
        _wait(Scripted(PodPhase.QUEUED, PodLost("RunPod no longer has the pod p1")))


def test_time_and_money_are_looked_at_while_a_pod_boots(stages: list[str]) -> None:
    """35 minutes of a dear machine are money too."""
    looks: list[int] = []

    def look() -> None:
        looks.append(1)
        if len(looks) == 3:
            raise TrainingFailed("budget", "used up")

    with pytest.raises(TrainingFailed):
        wait_until_ready(
            Scripted(PodPhase.RUNNING),  # type: ignore[arg-type]  # only `status` is asked
            POD,
            lambda pod: False,
            look=look,
            sleep=lambda seconds: None,
            now=lambda: CREATED,
        )


def test_a_cloud_that_can_not_say_is_asked_again(stages: list[str]) -> None:
    """Unknown is not gone."""
    assert (
        _wait(Scripted(TryAgain("503"), KeyRefused("401"), PodPhase.RUNNING), online_after=20) == 20
    )
