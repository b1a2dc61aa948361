from __future__ import annotations

import json
from pathlib import Path

import pytest

from runner.estimates.rows import BYTES_PER_TOKEN, rows_of

LINE = '{"text": "seven words that make up a row"}\n'


def _rows(folder: Path, *datasets: dict[str, object]) -> tuple[int | None, float | None]:
    found = rows_of({"datasets": list(datasets)}, [folder])
    return found.count, found.tokens


@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("a.jsonl", LINE * 3, 3),
        ("a.jsonl", LINE * 3 + "\n\n" + LINE.strip(), 4),
        ("a.json", json.dumps([1, 2, 3, 4, 5]), 5),
        ("a.json", LINE * 2, 2),
        ("a.csv", 'a,b\n1,"two\nlines"\n3,4\n', 2),
        ("a.txt", "one\ntwo\n", 2),
        ("a.json", '{"rows": []}', None),
        ("a.parquet", "PAR1", None),
    ],
)
def test_rows_of_a_local_file_are_counted(
    tmp_path: Path, name: str, text: str, count: int | None
) -> None:
    """In the forms that can be counted; None, not zero, in others."""
    (tmp_path / name).write_text(text)
    found, tokens = _rows(tmp_path, {"path": name})
    assert found == count
    assert tokens == (None if count is None else pytest.approx(len(text) / BYTES_PER_TOKEN))


def test_rows_of_several_files_and_folders_add_up(tmp_path: Path) -> None:
    """A folder's files, data_files of a form such as json, a split and a shard of it."""
    (tmp_path / "more").mkdir()
    for name in ("a.jsonl", "more/b.jsonl", "more/c.jsonl"):
        (tmp_path / name).write_text(LINE * 10)
    assert _rows(tmp_path, {"path": "a.jsonl"}, {"path": "more"})[0] == 30
    files = {"path": "json", "data_files": ["a.jsonl", "more/b.jsonl"]}
    assert _rows(tmp_path, files)[0] == 20
    assert _rows(tmp_path, {"path": "a.jsonl", "split": "train[:30%]"})[0] == 3
    assert _rows(tmp_path, {"path": "a.jsonl", "shards": 5})[0] == 2


def test_a_data_set_of_the_hub_is_unknown_and_named(tmp_path: Path) -> None:
    """And so is the sum, whatever the others hold."""
    (tmp_path / "a.jsonl").write_text(LINE)
    found = rows_of({"datasets": [{"path": "a.jsonl"}, {"path": "tatsu-lab/alpaca"}]}, [tmp_path])
    assert (found.count, found.tokens) == (None, None)
    assert found.notes == ("the rows of tatsu-lab/alpaca are unknown: it is not a file here",)


def test_a_streamed_data_set_has_no_number_of_rows() -> None:
    """pretraining_dataset is read as it comes."""
    assert "pretraining_dataset" in rows_of({"pretraining_dataset": "x"}, []).notes[0]
