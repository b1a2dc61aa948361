"""What the benchmark of downloads reports."""

from __future__ import annotations

from benchmarks.download import metrics


def test_pairs_give_a_ratio_and_faults_a_share() -> None:
    """Medians of the ratios within each pair, not of the times."""
    found = metrics(
        {
            "one-1": {"megabytes": 100, "ours": 10.0, "aria2c": 10.0},
            "one-2": {"megabytes": 100, "ours": 40.0, "aria2c": 20.0},
            "one-3": {"megabytes": 100, "ours": 11.0, "aria2c": 10.0},
            "plain-one": {"megabytes": 12, "seconds": 6.0},
            "faults-1": {"ours": 20.0, "ours_right": True, "plain": 60.0, "plain_right": False},
            "faults-2": {"ours": 22.0, "ours_right": False, "plain": 70.0, "plain_right": False},
        }
    )
    assert found["one_over_aria2c"] == {"value": 1.1, "unit": "x", "target": 1.1, "n": 3}
    assert found["one_speed"]["value"] == 9.091
    assert found["one_plain_speed"]["value"] == 2.0
    assert (found["faults_ours_right"]["value"], found["faults_plain_right"]["value"]) == (50, 0)
    assert "shards_over_aria2c" not in found


def test_without_results_there_are_no_figures() -> None:
    """A sweep that was stopped at once."""
    assert metrics({}) == {}
