from pathlib import Path

import pytest

from pod.events import Event
from pod.rundir import RunDir, write_json
from tasks import storing


def test_a_dead_mirror_is_started_again_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at each turn, which comes five times a second; what is shown is shown all the same."""
    now, started, seen = [0.0], [], []
    monkeypatch.setattr(storing, "start_mirror", lambda folder: bool(started.append(folder)))
    show = storing.tending(RunDir(tmp_path), seen.append, clock=lambda: now[0])
    event: Event = {"kind": "step", "t": 0.0, "attempt": 1, "step": 1}
    for _ in range(151):
        show([event])
        now[0] += 1
    assert len(seen) == 151
    assert len(started) == 150 // storing.TEND_EVERY


def test_what_keeps_checkpoints_from_the_store_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And once more when it comes back."""
    now = [0.0]
    monkeypatch.setattr(storing, "start_mirror", lambda folder: False)
    show = storing.tending(RunDir(tmp_path), lambda events: None, clock=lambda: now[0])

    def looks(trouble: str | None) -> int:
        write_json(tmp_path / "store.json", {"trouble": trouble})
        caplog.clear()
        for _ in range(3):
            now[0] += storing.TEND_EVERY
            show([])
        return sum("hub is down" in record.getMessage() for record in caplog.records)

    assert [looks("the hub is down"), looks(None), looks("the hub is down")] == [1, 0, 1]
