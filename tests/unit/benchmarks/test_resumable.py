"""A sweep that goes on where it was stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.resumable import Result, Sleep, Sweep, limit


def silent(line: str) -> None:
    """Say nothing."""


def test_each_item_is_done_once_over_several_starts(tmp_path: Path) -> None:
    """The second start does what is new; the results are those of both."""
    asked: list[str] = []

    def do(name: str, sleep: Sleep) -> Result:
        asked.append(name)
        return {"of": name}

    sweep = Sweep(tmp_path / "part")
    sweep.work(["a", "b"], do, silent)
    sweep.work(["a", "b", "c"], do, silent)
    assert sorted(asked) == ["a", "b", "c"]
    assert sweep.done() == {"a": {"of": "a"}, "b": {"of": "b"}, "c": {"of": "c"}}


def test_the_time_limit_leaves_no_result_of_what_it_cut_short(tmp_path: Path) -> None:
    """An item learns of it in its next sleep; those not begun are not begun."""
    begun: list[str] = []

    def do(name: str, sleep: Sleep) -> Result:
        begun.append(name)
        while True:
            sleep(0.001)

    sweep = Sweep(tmp_path / "part", workers=1)
    sweep.work(["a", "b"], do, silent, limit_s=0.05)
    assert begun == ["a"]
    assert sweep.done() == {}


def test_an_interrupt_stops_the_items_in_work(tmp_path: Path) -> None:
    """Ctrl-C comes to the caller; what was finished stays."""

    def do(name: str, sleep: Sleep) -> Result:
        while name == "b":
            sleep(0.001)
        return {}

    def interrupted(line: str) -> None:
        if line.startswith("a "):
            raise KeyboardInterrupt

    sweep = Sweep(tmp_path / "part")
    with pytest.raises(KeyboardInterrupt):
        sweep.work(["a", "b"], do, interrupted)
    assert list(sweep.done()) == ["a"]


def test_what_an_item_raises_ends_the_sweep(tmp_path: Path) -> None:
    """A bug is not passed over."""

    def do(name: str, sleep: Sleep) -> Result:
        raise ValueError(name)

    with pytest.raises(ValueError, match="a"):
        Sweep(tmp_path / "part").work(["a"], do, silent)


@pytest.mark.parametrize(("text", "seconds"), [(None, None), ("", None), ("90", 90.0)])
def test_the_time_limit_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, text: str | None, seconds: float | None
) -> None:
    """Without the variable there is none."""
    monkeypatch.delenv("BENCH_LIMIT_SECONDS", raising=False)
    if text is not None:
        monkeypatch.setenv("BENCH_LIMIT_SECONDS", text)
    assert limit() == seconds
