import json
from pathlib import Path

import pytest

from deployments.cli import main
from runner.home import REPOSITORY


@pytest.fixture(autouse=True)
def _empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AXR_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AXR_AXOLOTL_ENV", str(tmp_path / "no-axolotl"))


def _call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_bad_input_starts_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that can't be a task file is refused before Prefect is started for it."""
    assert _call("run", str(tmp_path / "missing.yml")) == 2
    said = capsys.readouterr().err
    assert "missing.yml" in said
    assert "Traceback" not in said
    assert not (tmp_path / "home").exists()


def test_check_says_where_and_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line with file, line and column for each finding; exit code 2."""
    file = tmp_path / "bad.yml"
    file.write_text("base_model: x\nrunner: {max_pric_per_hour: 1}\n")
    assert _call("check", str(file)) == 2
    said = capsys.readouterr().out
    assert f"{file}:2:" in said
    assert "max_price_per_hour" in said


GOOD = """\
base_model: ./model
datasets: [{path: rows.jsonl, type: alpaca}]
learning_rate: 1e-4
save_steps: 5
"""


def test_check_says_little_of_a_good_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it needs, a note for what could not be looked at here, and the verdict at the end."""
    (tmp_path / "model").mkdir()
    (tmp_path / "rows.jsonl").write_text("{}")
    file = tmp_path / "good.yml"
    file.write_text(GOOD)
    assert _call("check", "--offline", str(file)) == 0
    *needs, note, verdict = capsys.readouterr().out.splitlines()
    assert needs[0].startswith("VRAM and disk are unknown: the hub is not asked (--offline)")
    assert note == f"note  {file}: axolotl's own validation was left out: it is not here"
    assert verdict == f"{file}: ok"


def test_check_puts_first_what_stops(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One finding a line with file, line and column; warnings alone are exit code 0."""
    file = tmp_path / "odd.yml"
    file.write_text(GOOD.replace("1e-4", "0.5").replace("save_steps", "save_step"))
    assert _call("check", "--offline", str(file)) == 2
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"stop  {file}:1:1: base_model: there is no ./model")
    assert [line.split()[0] for line in lines[:5]] == ["stop", "stop", "warn", "warn", "warn"]
    assert lines[-1] == f"{file}: stop (2 to correct, 3 warnings)"
    (tmp_path / "model").mkdir()
    (tmp_path / "rows.jsonl").write_text("{}")
    assert _call("check", "--offline", str(file)) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{file}: warn (3 warnings)"


def test_check_as_json_has_one_object_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The form is a contract."""
    file = tmp_path / "bad.yml"
    file.write_text("base_model: x\nrunner: {max_pric_per_hour: 1}\n")
    good = str(REPOSITORY / "configs" / "examples" / "tiny.yml")
    assert _call("check", "--json", good, str(file)) == 2
    first, second = json.loads(capsys.readouterr().out)
    assert (first["file"], first["verdict"], first["findings"]) == (good, "ok", [])
    assert set(first) == {"file", "verdict", "findings", "notes", "estimate"}
    assert second["verdict"] == "stop"
    assert set(second["findings"][0]) == {
        *("line", "column", "key", "level", "code", "message", "hint")
    }


def test_pods_lists_nothing_on_an_empty_machine(capsys: pytest.CaptureFixture[str]) -> None:
    """Listing pods needs no Prefect."""
    assert _call("pods", "--json") == 0
    assert json.loads(capsys.readouterr().out) == []


def test_down_without_anything_up_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    """A second `down` says so."""
    assert _call("down") == 0
    assert capsys.readouterr().out == "nothing was running\n"


@pytest.mark.parametrize("amount", ["0", "-5", "ten", "inf"])
def test_a_budget_is_an_amount_of_dollars(amount: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Refused before Prefect is started."""
    assert _call("resume", "c0ffee", f"--budget={amount}") == 2
    assert f"expected USD above 0, found {amount}" in capsys.readouterr().err
