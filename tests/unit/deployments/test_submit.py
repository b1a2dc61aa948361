import pytest

from deployments import revive, submit


@pytest.mark.parametrize(("others", "stopped"), [([], True), (["another run"], False)])
def test_prefect_is_stopped_again_unless_others_need_it(
    others: list[str],
    stopped: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A second `run` uses the Prefect that the first one has started."""
    downs: list[object] = []
    monkeypatch.setattr(revive, "unfinished_parents", lambda: others)
    monkeypatch.setattr(submit.control, "down", downs.append)
    submit._stop_unless_needed()
    assert bool(downs) == stopped
    assert ("stays up for 1 more run" in capsys.readouterr().out) != stopped
