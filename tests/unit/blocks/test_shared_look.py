"""One look serves all runs: calls to a cloud do not grow with its pods."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from blocks import shared_look
from blocks.cloud import Pod, PodPhase, PodStatus, Seen
from runner.errors import KeyRefused, PodLost, RunnerError, TryAgain
from runner.locks import hold

BEGAN = datetime(2026, 11, 30, tzinfo=UTC)


def _pod(number: int) -> Pod:
    return Pod(f"p{number}", f"axr-run{number}", "runpod", BEGAN, 0.5, loading_per_hour=0.1)


class Counted:
    """A cloud that counts what it is asked."""

    def __init__(self, pods: int, phase: PodPhase = PodPhase.RUNNING, name: str = "runpod") -> None:
        self.name = name
        self.seen = [Seen(_pod(n), PodStatus(phase, gpu_percent=90.0)) for n in range(pods)]
        self.surveys, self.looks = 0, 0
        self.refusal: RunnerError | None = None

    def survey(self) -> list[Seen]:
        self.surveys += 1
        if self.refusal:
            raise self.refusal
        return self.seen

    def status(self, pod: Pod) -> PodStatus:
        self.looks += 1
        for each in self.seen:
            if each.pod.id == pod.id:
                return each.status
        raise PodLost(pod.id)

    def find(self, run: str) -> Pod | None:
        self.looks += 1
        return None


def _status(cloud: Counted, number: int, folder: Path, at: float = 0.0) -> PodStatus:
    return shared_look.status_of(_pod(number), cloud, now=lambda: at, folder=folder)  # type: ignore[arg-type]


@pytest.mark.parametrize("pods", [1, 100])
def test_a_minute_of_looks_costs_the_same_for_any_number_of_pods(pods: int, tmp_path: Path) -> None:
    cloud = Counted(pods)
    for at in range(0, 60, 10):
        for number in range(pods):
            status = _status(cloud, number, tmp_path, at + number / 100)
            assert status == PodStatus(PodPhase.RUNNING, gpu_percent=90.0)
    assert (cloud.surveys, cloud.looks) == (6, 0)


def test_the_price_comes_from_the_same_listing(tmp_path: Path) -> None:
    cloud = Counted(3)
    _status(cloud, 0, tmp_path)
    found = shared_look.find(_pod(2), cloud, now=lambda: 1.0, folder=tmp_path)  # type: ignore[arg-type]
    assert found == _pod(2)
    assert (cloud.surveys, cloud.looks) == (1, 0)


@pytest.mark.parametrize("phase", [PodPhase.STOPPED, PodPhase.OUTBID, PodPhase.BROKEN])
def test_bad_news_is_asked_for_again(phase: PodPhase, tmp_path: Path) -> None:
    cloud = Counted(1, phase)
    assert _status(cloud, 0, tmp_path).phase is phase
    assert (cloud.surveys, cloud.looks) == (1, 1)


def test_a_pod_that_is_missing_in_the_listing_is_not_gone_before_it_was_asked_for(
    tmp_path: Path,
) -> None:
    cloud = Counted(1)
    with pytest.raises(PodLost):
        _status(cloud, 7, tmp_path)
    assert cloud.looks == 1


@pytest.mark.parametrize("refusal", [TryAgain("429"), KeyRefused("401")])
def test_a_refusal_is_heard_once_by_all(refusal: RunnerError, tmp_path: Path) -> None:
    cloud = Counted(5)
    cloud.refusal = refusal
    for number in range(5):
        with pytest.raises(type(refusal), match=str(refusal)):
            _status(cloud, number, tmp_path)
    assert (cloud.surveys, cloud.looks) == (1, 0)
    cloud.refusal = None
    assert _status(cloud, 0, tmp_path, at=shared_look.FRESH + 1).phase is PodPhase.RUNNING


def test_while_another_run_asks_an_older_listing_will_do_for_a_while(tmp_path: Path) -> None:
    cloud = Counted(1)
    _status(cloud, 0, tmp_path)
    with hold(tmp_path / "runpod.lock"):
        assert _status(cloud, 0, tmp_path, at=shared_look.USABLE).phase is PodPhase.RUNNING
        with pytest.raises(TryAgain, match="another run is asking"):
            _status(cloud, 0, tmp_path, at=shared_look.USABLE + 1)
    assert (cloud.surveys, cloud.looks) == (1, 0)


@pytest.mark.parametrize("left", ["", "[]", '{"t": "x"}', '{"t": 1000.0, "pods": []}'])
def test_what_can_t_be_read_or_comes_from_the_future_is_made_anew(
    left: str, tmp_path: Path
) -> None:
    cloud = Counted(1)
    (tmp_path / "runpod.json").write_text(left)
    assert _status(cloud, 0, tmp_path).phase is PodPhase.RUNNING
    assert cloud.surveys == 1


def test_this_machine_s_own_pods_are_looked_at_directly(tmp_path: Path) -> None:
    cloud = Counted(1, name="local")
    pod = replace(_pod(0), cloud="local")
    shared_look.status_of(pod, cloud, folder=tmp_path)  # type: ignore[arg-type]
    assert (cloud.surveys, cloud.looks) == (0, 1)
