from typing import Any

from benchmarks.preemption import _joined as joined
from benchmarks.preemption import metrics, rows_of


def _result(**changes: Any) -> dict[str, Any]:
    whole = {"state": "completed", "rows": {"1": ["a"]}, "left": 0, "bill_off": 0.001}
    return {**whole, "steps_lost": 0, "attempts": 1, **changes}


def test_a_run_counts_only_with_the_rows_of_a_run_that_lost_nothing() -> None:
    """Every measure of a sweep with one good run and one bad."""
    bad = _result(state="failed", rows={"1": ["b"]}, left=1, bill_off=0.5)
    moved = _result(attempts=2, steps_lost=30)
    found = metrics({"clean": _result(), "kill-01": moved, "kill-02": bad})
    values = {name: metric["value"] for name, metric in found.items()}
    assert values == {
        "completed": 50.0,
        "same_rows": 50.0,
        "machines_left": 1,
        "bill_off": 0.5,
        "steps_lost": 30,
        "moved_in_training": 50.0,
    }


def test_nothing_is_said_without_a_run_to_compare_with() -> None:
    """A sweep that was stopped at once."""
    assert metrics({}) == metrics({"kill-01": _result()}) == {}


def test_rows_of_two_machines_must_agree() -> None:
    """A step that both have trained is the same step."""
    assert joined([{1: ["a"], 2: ["b"]}, {2: ["b"], 3: ["c"]}]) == {
        "1": ["a"],
        "2": ["b"],
        "3": ["c"],
    }
    assert joined([{2: ["b"]}, {2: ["x"]}])["2"] == ["different rows on two machines"]


def test_a_line_that_was_cut_off_is_not_read(tmp_path: Any) -> None:
    """The machine was taken in the middle of it."""
    lines = '{"attempt": 1, "step": 1, "rows": ["a"]}\n{"attempt": 1, "st'
    (tmp_path / "rows.jsonl").write_text(lines)
    assert rows_of(tmp_path) == {1: ["a"]}
