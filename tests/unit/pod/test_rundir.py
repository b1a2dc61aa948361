"""The run directory's JSON files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pod.rundir import RunDir, read_json, write_json


def test_every_path_lies_inside_the_run_directory(tmp_path: Path) -> None:
    """No property leads out of the folder, and no two share a name."""
    run_dir = RunDir(tmp_path)
    names = [name for name, value in vars(RunDir).items() if isinstance(value, property)]
    paths = {getattr(run_dir, name) for name in names}
    assert {path.parent for path in paths} == {tmp_path}
    assert len(paths) == len(names) == 16


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    """The folder is made, and nothing but the file is left in it."""
    path = tmp_path / "new" / "attempt.json"
    write_json(path, {"attempt": 2, "rung": None})
    assert read_json(path) == {"attempt": 2, "rung": None}
    assert [file.name for file in path.parent.iterdir()] == ["attempt.json"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    """A value that JSON refuses must not cost what was there before."""
    path = tmp_path / "control.json"
    write_json(path, {"seq": 1})
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"seq": float("nan")})
    assert read_json(path) == {"seq": 1}


def test_a_missing_file_is_none_and_another_shape_is_an_error(tmp_path: Path) -> None:
    """None means not written yet; a list or half a text means that somebody else wrote."""
    assert read_json(tmp_path / "no.json") is None
    path = tmp_path / "list.json"
    path.write_text(json.dumps([1]))
    with pytest.raises(ValueError, match="no JSON object"):
        read_json(path)
    path.write_text('{"seq": ')
    with pytest.raises(ValueError, match="Expecting value"):
        read_json(path)
