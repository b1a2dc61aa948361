"""The comment at a pull request: composed from git and `check`, safe to show."""

from __future__ import annotations

from pathlib import Path

import pytest

from deployments.check_changes import check_text, main
from deployments.commenting import LONGEST, MARK, NOTHING, comment, plain
from tests.histories import History

TASK = """base_model: x
datasets: [{path: me/rows, type: alpaca}]
learning_rate: 0.001
save_steps: 10
"""
RENTED = (
    TASK
    + """hub_model_id: me/x
runner: {cloud: [runpod, local], gpu: [NVIDIA A40], max_price_per_hour: 1.5, max_hours: 8}
"""
)


@pytest.fixture(autouse=True)
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing listens there: what the hub would say of a model is unknown."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")


@pytest.fixture
def history(tmp_path: Path) -> History:
    """A repository whose branch work has left main."""
    made = History.new(tmp_path / "repository")
    made.add("configs/a.yml", text=TASK)
    made.git("checkout", "-q", "-b", "work")
    return made


def _comment(history: History, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    words = ["--git", str(history.folder), "--base", "main", "--head", history.head]
    code = main(words)
    return code, capsys.readouterr().out


def test_the_comment_says_verdict_findings_machine_price_time_and_cost(
    history: History, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what the branch changes, and of nothing that main has got since."""
    monkeypatch.setenv("AXR_GATEWAY_URL", "https://gateway.example")
    history.write("configs/rented.yml", RENTED)
    history.add("configs/bad.yml", text=TASK + "runner: {max_pric_per_hour: 1}\n")
    history.git("checkout", "-q", "main")
    history.add("configs/later.yml", text=TASK)
    history.git("checkout", "-q", "work")
    code, text = _comment(history, capsys)
    assert code == 2
    assert text.startswith(f"{MARK}\n### 2 task files: 1 would not start")
    assert "later.yml" not in text
    row = next(line for line in text.splitlines() if line.startswith("| `configs/rented.yml`"))
    assert "✅ ok | 1× `NVIDIA A40` on runpod, then local | about $0.40/h, at most $1.50/h" in row
    assert "at most 8 h | at most $12.00 |" in row
    assert "- ⛔ line 4: `runner.max_pric_per_hour" in text or "max_pric_per_hour" in text
    assert text.rstrip().endswith("Nothing was rented.")


def test_a_branch_without_task_files_says_so_in_one_line(
    history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which is only to take the place of what an earlier push got."""
    history.add("README.md", text="x")
    code, text = _comment(history, capsys)
    assert code == 0
    assert text.startswith(f"{MARK}\n{NOTHING}\n")


def test_callbacks_are_looked_for_at_the_head_commit(
    history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    """What lies in the working tree but was not committed is not there."""
    history.add("mine.py", text="class Mine: ...\n")
    history.add("configs/fine.yml", text=TASK + "runner: {callbacks: [mine.Mine]}\n")
    history.add("configs/typo.yml", text=TASK + "runner: {callbacks: [mine.Mien]}\n")
    history.add("configs/late.yml", text=TASK + "runner: {callbacks: [late.Late]}\n")
    history.write("late.py", "class Late: ...\n")
    code, text = _comment(history, capsys)
    assert code == 2
    rows = {line.split("`")[1]: line for line in text.splitlines() if line.startswith("| `")}
    assert "ok" in rows["configs/fine.yml"]
    assert "mine.py has no Mien" in text
    assert "ok" not in rows["configs/typo.yml"]
    assert "warn" in rows["configs/late.yml"]
    assert "the repository has no late.py" in text


def test_a_budget_is_the_most_that_it_can_cost() -> None:
    """All attempts and pods together."""
    file = check_text("a.yml", RENTED.replace("max_hours: 8", "max_hours: 8, budget: 3").encode())
    assert "at most $3.00 |" in comment([file], "ab" * 20)


@pytest.mark.parametrize("name", ["`x` @everyone", "a|b", "<img src=x>", "``", "[x](http://y)"])
def test_names_are_shown_as_they_are_and_do_nothing(name: str) -> None:
    """In a code span that they can't leave, in a table that they can't break."""
    shown = plain(name)
    ticks = shown[: len(shown) - len(shown.lstrip("`"))]
    assert shown.endswith(ticks)
    assert ticks not in shown[len(ticks) : -len(ticks)]
    text = comment([check_text(name, TASK.encode())], "ab" * 20)
    (row,) = (line for line in text.splitlines() if "✅" in line)
    assert row.replace("\\|", "").count("|") == 7


def test_a_comment_stays_below_githubs_limit() -> None:
    """GitHub refuses a longer one whole."""
    bad = b"runner: {" + b", ".join(b"x%d: 1" % number for number in range(200)) + b"}\n"
    files = [check_text(f"configs/{'x' * 100}{number}.yml", bad) for number in range(400)]
    text = comment(files, "ab" * 20)
    assert LONGEST / 2 < len(text) < 65_536
    assert "Too much to show all of it." in text
