"""Which samples of an evaluation are kept, and what stands in their file."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pod import eval_rows
from pod.eval_rows import EvalRow, Keeper, Sample, badness, chosen
from pod.rundir import RunDir


def sample(loss: float, *, index: int | None = None, **changes: Any) -> Sample:
    given = {"tokens": 3, "right": 0.5, "peak": loss, "input": (1,), "label": (2, 3)}
    return Sample(loss=loss, index=index, **{**given, "prediction": (2, 4), **changes})


def kept(losses: list[float], *, worst: int = 3, others: int = 2) -> list[Sample]:
    keeper = Keeper(0, worst=worst, others=others)
    for index, loss in enumerate(losses):
        keeper.offer(loss, lambda loss=loss, index=index: sample(loss, index=index))  # type: ignore[misc]
    return chosen(keeper.samples(), worst=worst, others=others)


class Tokenizer:
    """Each token is a word."""

    def decode(self, ids: list[int]) -> str:
        return " ".join(f"w{token}" for token in ids)


def test_the_worst_come_first_and_some_others_after_them() -> None:
    """No sample is in both."""
    losses = [float(n) for n in range(100)]
    random.Random(2).shuffle(losses)
    found = kept(losses)
    assert [each.loss for each in found[:3]] == [99.0, 98.0, 97.0]
    assert [each.chosen for each in found] == ["worst"] * 3 + ["random"] * 2
    assert found[3].loss > found[4].loss
    assert len({each.index for each in found}) == 5


def test_a_loss_that_is_no_number_is_the_worst() -> None:
    """Then infinity; NaN compares with nothing, so it needs a place of its own."""
    found = kept([1.0, math.nan, 5.0, math.inf, 2.0], worst=3, others=0)
    assert {str(each.loss) for each in found[:2]} == {"nan", "inf"}
    assert found[2].loss == 5.0
    assert badness(None) < badness(-1e9) < badness(math.nan)


def test_no_more_is_held_than_what_is_kept_however_long_the_evaluation() -> None:
    """And most samples are not even made: their predictions would cost time."""
    keeper, made = Keeper(1, worst=5, others=2), Counter[str]()

    def make() -> Sample:
        made["samples"] += 1
        return sample(0.0)

    losses = [float(n) for n in range(5000)]
    random.Random(3).shuffle(losses)
    for loss in losses:
        keeper.offer(loss, make)
        assert len(keeper.samples()) <= 7
    assert keeper.offered == 5000
    assert made["samples"] < 200


def test_every_sample_has_the_same_chance_to_be_among_the_others() -> None:
    """The first and the last alike, over many evaluations."""
    seen: Counter[int | None] = Counter()
    for seed in range(2000):
        keeper = Keeper(seed, worst=1, others=2)
        for index in range(10):
            keeper.offer(1.0, lambda index=index: sample(1.0, index=index))  # type: ignore[misc]
        seen.update(each.index for each in keeper.samples() if each.chosen == "random")
    assert sum(seen.values()) == 4000
    assert all(330 < seen[index] < 470 for index in range(10)), seen


def test_rows_that_ranks_were_given_twice_count_once() -> None:
    """By their index; where it is not known, by what they hold."""
    doubled = [sample(5.0, index=1), sample(5.0, index=1), sample(4.0, index=2)]
    assert [each.loss for each in chosen(doubled)] == [5.0, 4.0]
    unknown = [sample(5.0), sample(5.0), sample(5.0, label=(9,))]
    assert len(chosen(unknown)) == 2


def test_a_file_comes_back_as_it_was(tmp_path: Path) -> None:
    """One line a row, in words, also for losses that JSON does not know."""
    run_dir = RunDir(tmp_path)
    rows = [
        eval_rows.row_of(each, Tokenizer(), attempt=2, step=20)
        for each in (sample(math.inf, index=4), sample(1.5, label=(7, 8)))
    ]
    path = eval_rows.write(run_dir, rows, attempt=2, step=20, of="")
    assert path == tmp_path / "evals" / "step-20.attempt-2.jsonl"
    assert eval_rows.read(path) == rows
    first, second = (json.loads(line) for line in path.read_text().splitlines())
    assert (first["loss"], first["index"], second["index"]) == ("inf", 4, None)
    assert (second["input"], second["label"], second["prediction"]) == ("w1", "w7 w8", "w2 w4")


@pytest.mark.parametrize("text", ["a\u2028b", "a\nb", '"{', "日本語"])
def test_any_text_stays_on_its_line(tmp_path: Path, text: str) -> None:
    """Line separators of Unicode are no ends of lines here."""
    row = EvalRow(1.0, 1, 0.0, 1.0, None, "worst", text, text, text, 1, 5)
    path = eval_rows.write(RunDir(tmp_path), [row, row], attempt=1, step=5, of="")
    assert eval_rows.read(path) == [row, row]


def test_texts_are_cut() -> None:
    """A sample of a million tokens makes a line that can be looked at."""
    long = tuple(range(10_000))
    row = eval_rows.row_of(sample(1.0, input=long), Tokenizer(), attempt=1, step=1)
    assert len(row.input) == eval_rows.EXCERPT
    assert eval_rows.row_of(sample(1.0), None, attempt=1, step=1).input == ""


def test_the_newest_evaluation_is_that_of_the_newest_attempt(tmp_path: Path) -> None:
    """Attempt 2 went back, so its steps are lower; all its sets count, others do not."""
    run_dir = RunDir(tmp_path)

    def write(attempt: int, step: int, of: str, *losses: float) -> None:
        rows = [
            eval_rows.row_of(sample(loss), Tokenizer(), attempt=attempt, step=step)
            for loss in losses
        ]
        eval_rows.write(run_dir, rows, attempt=attempt, step=step, of=of)

    assert eval_rows.newest_worst(run_dir) == []
    write(1, 100, "", 99.0)
    write(2, 60, "", 98.0)
    write(2, 80, "easy", 1.0, 0.5)
    write(2, 80, "held/out", 7.0)
    (run_dir.evals / "notes.jsonl").write_text("not ours")
    (run_dir.evals / ".step-90.attempt-2.jsonl.123").write_text("half")
    assert [row.loss for row in eval_rows.newest_worst(run_dir)] == [7.0, 1.0, 0.5]
    assert [row.loss for row in eval_rows.newest_worst(run_dir, 1)] == [7.0]
