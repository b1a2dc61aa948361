import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pod import ending
from pod.access import Proof
from pod.guard import RESCUE_AGAIN_AFTER, Guard, end_if_over
from pod.lease import Lease
from pod.marks import Marks, marks_of
from pod.reasons import FINISHED_GRACE, GRACE, Facts, Limits, limits_of, why_end
from pod.rundir import RunDir
from pod.saving import NotSaved
from runner.home import REPOSITORY

NEVER = float("inf")
START = 1_000_000.0
HOUR = 3600.0


class Pod:
    """A guard whose world is played: its clock, the control side, the cloud, the rescue."""

    def __init__(self, folder: Path, **environment: str) -> None:
        (folder / "run").mkdir(parents=True, exist_ok=True)
        self.environment = {
            "AXR_CLOUD": "runpod",
            "AXR_POD": "p1",
            "AXR_RUN": "run",
            "AXR_VOLUME": str(folder),
            "AXR_DEADLINE": str(START + 24 * HOUR),
            **environment,
        }
        self.now = START
        self.labels: dict[str, Any] | None = {}
        self.failing: str | None = None
        self.done: list[tuple[str, float]] = []
        self.told: list[tuple[str, str]] = []
        self.last_renewal = NEVER
        self.guard = self.start()

    def start(self, *, again: bool = False) -> Guard:
        """A new guard process on the same pod."""
        self.guard = Guard(
            self.environment,
            clock=lambda: self.now,
            sleep=self._sleep,
            read=self._read,
            prove=lambda _: Proof("proved", "REST 200"),
            end=lambda _: self._note("end"),
            stop=lambda _, seconds: self._note("stop"),
            save=self._save,
            tell=self._tell,
            again=again,
        )
        return self.guard

    @property
    def marks(self) -> Marks:
        return marks_of(self.environment)

    @property
    def ended_at(self) -> float | None:
        """Seconds after the start."""
        return next((t for what, t in self.done if what == "end"), None)

    def renewed_until(self, seconds: float) -> None:
        """The control side renews every minute until then."""
        self.last_renewal = START + seconds

    def _read(self, _: Mapping[str, str]) -> dict[str, Any] | None:
        if self.labels is None:
            return None
        renewed = min(self.now, self.last_renewal) // 60 * 60
        return {"axr.lease": renewed, **self.labels} if self.last_renewal != NEVER else self.labels

    def _save(self, _: RunDir, within: float) -> str:
        self._note("save")
        if self.failing:
            raise NotSaved(self.failing)
        return "the model in hf://me/store"

    def _tell(self, _: Mapping[str, str], label: str, text: str) -> bool:
        self.told.append((label, text))
        return False

    def _note(self, what: str) -> None:
        self.done.append((what, self.now - START))

    def _sleep(self, seconds: float) -> None:
        assert seconds > 0
        assert self.ended_at is None, "it goes on after the end"
        self.now += seconds
        assert self.now < START + 48 * HOUR, "it never ends"


def facts(**changes: Any) -> Facts:
    usual: dict[str, Any] = {
        "began": START,
        "lease": Lease(START),
        "training": False,
        "finished": None,
        "heard": True,
        "settled": True,
    }
    return Facts(**{**usual, **changes})


def limits(**changes: Any) -> Limits:
    usual: dict[str, Any] = {
        "deadline": START + 24 * HOUR,
        "stop_after": NEVER,
        "terminate_after": NEVER,
        "lease": 900.0,
        "keep": False,
    }
    return Limits(**{**usual, **changes})


SPENT = Lease(START + HOUR, ends_at=START + HOUR - GRACE)
LATE = 100 * HOUR
REASONS: list[tuple[str, float, Facts, Limits, str | None]] = [
    ("a fresh pod", 0, facts(), limits(), None),
    ("the deadline", 24 * HOUR + GRACE, facts(training=True), limits(), "deadline"),
    ("the control side acts first", 24 * HOUR, facts(training=True), limits(), None),
    ("stop_after", 60 + GRACE, facts(), limits(stop_after=60), "stop_after"),
    ("terminate_after", 60 + GRACE, facts(), limits(terminate_after=60), "terminate_after"),
    ("-1 never lifts the deadline", LATE, facts(), limits(), "deadline"),
    ("the budget, also in training", HOUR, facts(lease=SPENT, training=True), limits(), "budget"),
    ("the budget of a kept pod", HOUR, facts(lease=SPENT), limits(keep=True), "budget"),
    (
        "old notes, before anybody was asked",
        HOUR,
        facts(lease=SPENT, heard=False, settled=False),
        limits(),
        None,
    ),
    ("a lapsed lease", 900, facts(), limits(), "lease"),
    ("a lease that just holds", 899, facts(), limits(), None),
    ("a trainer runs", LATE / 10, facts(training=True), limits(), None),
    ("a kept pod", LATE / 10, facts(), limits(keep=True), None),
    ("a container that has just come back", 900, facts(settled=False), limits(), None),
    ("published", FINISHED_GRACE, facts(finished=START), limits(), "finished"),
    ("just published", FINISHED_GRACE - 1, facts(finished=START), limits(), None),
    ("published and started again", 1, facts(finished=START, again=True), limits(), "finished"),
    ("published and kept", 1, facts(finished=START, again=True), limits(keep=True), None),
]


@pytest.mark.parametrize(
    ("after", "known", "bounds", "why"), [case[1:] for case in REASONS], ids=[c[0] for c in REASONS]
)
def test_when_a_pod_must_end(after: float, known: Facts, bounds: Limits, why: str | None) -> None:
    """H16: deadline, stop_after and terminate_after are ours; no timer of a provider is trusted."""
    assert why_end(START + after, known, bounds) == why


@pytest.mark.parametrize(
    ("text", "seconds"), [("60", 60.0), ("-1", NEVER), ("", NEVER), ("soon", NEVER), (None, NEVER)]
)
def test_timers_of_a_task_file(text: str | None, seconds: float) -> None:
    """The proof of concept's -1 is never."""
    timer = {} if text is None else {"AXR_STOP_AFTER": text}
    assert limits_of({"AXR_DEADLINE": "1", **timer}).stop_after == seconds


def test_the_pod_ends_at_its_deadline_after_saving(tmp_path: Path) -> None:
    """H16: the trainer may save first, then what only this pod has is brought away."""
    pod = Pod(tmp_path, AXR_DEADLINE=str(START + HOUR), AXR_KEEP="yes")
    pod.guard.watch()
    assert [what for what, _ in pod.done] == ["stop", "save", "end"]
    assert pod.ended_at == pytest.approx(HOUR + GRACE, abs=5)
    assert pod.marks.read("ended") == {"why": "deadline", "t": START + pod.ended_at}


def test_a_clock_that_is_set_forward_does_not_cost_a_night(tmp_path: Path) -> None:
    """The guard looks at the clock every few seconds instead of sleeping for hours."""
    pod = Pod(tmp_path)
    assert not pod.guard.ended()
    pod.now += 1e6
    assert pod.guard.ended()


@pytest.mark.parametrize("labels", [{}, None], ids=["nobody renews", "the API is away"])
def test_without_a_control_side_the_pod_ends_within_lease_and_grace(
    tmp_path: Path, labels: dict[str, Any] | None
) -> None:
    """H51, H56: whoever should have come never came, or died; nobody must click anything."""
    pod = Pod(tmp_path)
    pod.labels = labels
    pod.guard.watch()
    assert pod.ended_at == pytest.approx(900, abs=60)
    assert (pod.marks.read("ended") or {})["why"] == "lease"


def test_a_lease_lapses_only_when_renewing_stops(tmp_path: Path) -> None:
    """Counted from the last change that this pod has seen, by its own clock."""
    pod = Pod(tmp_path)
    pod.renewed_until(2 * HOUR)
    pod.guard.watch()
    assert pod.ended_at == pytest.approx(2 * HOUR + 900, abs=60)


def test_an_api_that_was_away_for_less_than_the_lease_costs_nothing(tmp_path: Path) -> None:
    """A read that fails says nothing."""
    pod = Pod(tmp_path, AXR_DEADLINE=str(START + HOUR))
    pod.renewed_until(10 * HOUR)
    for minute in range(58):
        pod.labels = None if minute % 15 < 12 else {}
        for _ in range(12):
            assert not pod.guard.ended()
            pod.now += 5.0


def test_the_newest_word_on_the_budget_counts(tmp_path: Path) -> None:
    """It moves when a pod is lost, when prices change, and when a step that saves may pass it."""
    pod = Pod(tmp_path)
    pod.renewed_until(10 * HOUR)
    pod.labels = {"axr.ends_at": START + HOUR}
    while pod.now < START + HOUR - 60:
        assert not pod.guard.ended()
        pod.now += 5.0
    pod.labels = {"axr.ends_at": START + 2 * HOUR}
    pod.guard.watch()
    assert pod.ended_at == pytest.approx(2 * HOUR + GRACE, abs=5)
    assert (pod.marks.read("ended") or {})["why"] == "budget"


def test_a_budget_that_is_lifted_ends_nothing(tmp_path: Path) -> None:
    """The control side writes an empty label for that."""
    pod = Pod(tmp_path)
    pod.renewed_until(HOUR)
    pod.labels = {"axr.ends_at": START + 600}
    assert not pod.guard.ended()
    pod.labels = {"axr.ends_at": ""}
    pod.guard.watch()
    assert pod.ended_at == pytest.approx(HOUR + 900, abs=60)


def test_a_budget_that_was_told_once_holds_when_the_control_side_is_gone(tmp_path: Path) -> None:
    """H17: kept on the volume, so a new guard in a new container knows it too."""
    pod = Pod(tmp_path, AXR_KEEP="yes")
    pod.labels = {"axr.lease": 1, "axr.ends_at": START + HOUR}
    assert not pod.guard.ended()
    pod.labels = None
    pod.now += 10
    pod.start()
    pod.guard.watch()
    assert pod.ended_at == pytest.approx(HOUR + GRACE, abs=5)


@pytest.mark.parametrize("why", ["deadline", "budget"])
def test_a_container_that_starts_again_when_its_pod_is_over_ends_it(
    tmp_path: Path, why: str
) -> None:
    """H17: nothing is trained again, whether it was said before, or passed while it was down."""
    pod = Pod(tmp_path, AXR_DEADLINE=str(START + HOUR))
    if why == "budget":
        pod.labels = {"axr.lease": 1, "axr.ends_at": START + 60}
        assert not pod.guard.ended()
        pod.marks.write("ended", why="budget", t=START + 120)
        pod.labels = None
    pod.now = START + (2 * HOUR if why == "deadline" else 130)
    came_back = pod.now
    end_if_over(pod.start(again=True))
    assert pod.ended_at is not None
    assert START + pod.ended_at <= came_back + 60
    assert (pod.marks.read("ended") or {})["why"] == why


def test_a_container_that_starts_again_in_time_goes_on(tmp_path: Path) -> None:
    """Nothing is asked and nothing is waited for."""
    pod = Pod(tmp_path)
    end_if_over(pod.start(again=True))
    assert pod.done == []
    assert pod.now == START


def test_a_lapsed_lease_does_not_outlast_the_control_sides_return(tmp_path: Path) -> None:
    """A local pod whose parent was revived is started again, and must not end itself at once."""
    pod = Pod(tmp_path, AXR_CLOUD="local")
    pod.guard.watch()
    pod.done.clear()
    pod.now += HOUR
    pod.renewed_until(100 * HOUR)
    end_if_over(pod.start(again=True))
    assert pod.done == []
    assert pod.marks.read("ended") is None


def test_a_model_that_can_be_brought_nowhere_keeps_the_pod_until_its_deadline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is tried again, said loudly, and at the deadline the pod ends all the same."""
    pod = Pod(tmp_path, AXR_DEADLINE=str(START + HOUR))
    pod.failing = "the store is full"
    pod.guard.watch()
    assert pod.ended_at == pytest.approx(HOUR + GRACE, abs=5)
    tries = [t for what, t in pod.done if what == "save"]
    assert all(b - a >= RESCUE_AGAIN_AFTER for a, b in pairwise(tries[:-1]))
    assert len(tries) == pytest.approx((HOUR - 900) / RESCUE_AGAIN_AFTER, abs=2)
    said = capsys.readouterr().out
    assert "THE ONLY COPY OF THE MODEL OF RUN run IS ON THIS POD" in said
    assert "THE POD IS KEPT UNTIL ITS DEADLINE" in said
    assert "the store is full" in said
    assert (pod.marks.read("rescue") or {})["ok"] is False
    assert len(pod.told) == len(tries)
    label, words = pod.told[0]
    assert label == "axr.only_copy"
    assert words in said


def test_a_rescue_that_works_later_ends_the_pod_then(tmp_path: Path) -> None:
    """It costs no more than it must."""
    pod = Pod(tmp_path)
    pod.failing = "the hub is away"
    while len([1 for what, _ in pod.done if what == "save"]) < 2:
        assert not pod.guard.ended()
        pod.now += 5.0
    pod.failing = None
    pod.guard.watch()
    assert pod.told[-1] == ("axr.only_copy", "")
    assert pod.ended_at == pytest.approx(900 + 2 * RESCUE_AGAIN_AFTER, abs=60)


def test_whatever_breaks_while_saving_the_pod_ends_at_its_deadline(tmp_path: Path) -> None:
    """A guard that dies of an odd error would be started again for ever, at full price."""
    pod = Pod(tmp_path, AXR_DEADLINE=str(START + HOUR))

    def broken(*_: object) -> str:
        raise MemoryError

    pod.guard._save, pod.guard._stop = broken, broken  # type: ignore[assignment]
    pod.guard.watch()
    assert pod.ended_at == pytest.approx(HOUR + GRACE, abs=5)


def test_a_local_pod_ends_without_a_rescue(tmp_path: Path) -> None:
    """Its volume stays on this machine."""
    pod = Pod(tmp_path, AXR_CLOUD="local")
    pod.failing = "nobody must be asked"
    pod.guard.watch()
    assert [what for what, _ in pod.done] == ["stop", "end"]


def test_access_is_asked_for_until_it_is_proved_and_then_no_more(tmp_path: Path) -> None:
    """H21: an API that is away is not a key that is refused, and what was proved stays so."""
    pod = Pod(tmp_path)
    answers = [
        Proof("unknown", "REST 503"),
        Proof("refused", "REST 403"),
        Proof("proved", "REST 200"),
    ]
    pod.guard._prove = lambda _: answers.pop(0)
    seen = []
    for _ in range(4):
        assert not pod.guard.ended()
        seen.append((pod.marks.read("access") or {})["state"])
        pod.now += 5.0
    assert seen == ["unknown", "refused", "proved", "proved"]
    pod.start().ended()
    assert (pod.marks.read("access") or {})["t"] == START + 10


def test_a_full_volume_does_not_stop_the_guard(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends the pod all the same."""
    pod = Pod(tmp_path, AXR_DEADLINE=str(START + HOUR), AXR_KEEP="yes")
    for file in (tmp_path / "guard-p1").iterdir():
        file.unlink()
    (tmp_path / "guard-p1").rmdir()
    (tmp_path / "guard-p1").write_text("in the way")
    pod.guard.watch()
    assert pod.ended_at == pytest.approx(HOUR + GRACE, abs=5)
    assert "can't be written" in capsys.readouterr().out


def test_a_guard_needs_nothing_but_the_standard_library() -> None:
    """It runs before anything is installed, in whatever Python the image has."""
    code = (
        f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}); import pod.guard, pod.ending; "
        "assert not any('site-packages' in (m.__file__ or '') for m in sys.modules.values() "
        "if hasattr(m, '__file__'))"
    )
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)


def test_ending_a_local_pod_spares_whoever_does_not_carry_its_mark() -> None:
    """H53: only processes of the pod die, those in sessions of their own too."""
    code = "import time; time.sleep(60)"
    mine, other = (
        subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "AXR_POD": pod},
            start_new_session=True,
        )
        for pod in ("local-mine", "local-other")
    )
    try:
        while not _has_mark(mine.pid):
            pass
        ending.end_local_pod("local-mine")
        assert mine.wait(5) == -signal.SIGKILL
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def _has_mark(pid: int) -> bool:
    return b"AXR_POD=local-mine" in Path(f"/proc/{pid}/environ").read_bytes()
