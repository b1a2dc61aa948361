"""runner.callbacks as far as the control side can know them: by reading their source."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.callbacks_found import callback_findings, reading, repository_root
from runner.finding import Finding
from runner.taskfile import parse_task_file

CLASS = "class Mine(TrainerCallback):\n    pass\n"


def found(files: dict[str, str], *names: str) -> list[Finding]:
    """What is said of callbacks in a repository of these files."""
    text = f"base_model: x\nrunner:\n  callbacks: [{', '.join(names)}]\n"
    task = parse_task_file(text, "configs/x.yml")
    contents = {path: content.encode() for path, content in files.items()}
    return callback_findings(task, contents.get)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("mine.py", CLASS),
        ("mine/__init__.py", CLASS),
        ("mine.py", "from elsewhere import Mine\n"),
        ("mine.py", "from elsewhere import Other as Mine\n"),
        ("mine.py", "from elsewhere import *\n"),
        ("mine.py", "Mine = make_callback()\n"),
        ("mine.py", "def __getattr__(name): ...\n"),
        ("mine.py", "if True:\n    class Mine(Callback): ...\n"),
    ],
)
def test_a_class_that_may_be_there_is_fine(path: str, text: str) -> None:
    """Whatever way Python has of giving a module a name."""
    assert found({path: text}, "mine.Mine") == []


def test_a_file_of_a_task_file_names_callbacks_from_the_root() -> None:
    """A folder needs no __init__.py."""
    assert found({"configs/callbacks.py": CLASS}, "configs.callbacks.Mine") == []


@pytest.mark.parametrize(
    ("files", "name", "message"),
    [
        ({"mine.py": CLASS}, "mine.Main", "mine.py has no Main"),
        ({"mine/__init__.py": ""}, "mine.Mine", "mine/__init__.py has no Mine"),
        ({"mine/__init__.py": ""}, "mine.more.Mine", "the repository has no mine/more.py"),
        ({"mine.py": CLASS}, "mine.more.Mine", "the repository has no mine/more.py"),
        ({"mine.py": "class Mine(:\n"}, "mine.Mine", "mine.py:1 is no Python: invalid syntax"),
        ({"mine.py": "x = '\0'\n"}, "mine.Mine", "mine.py is no Python: source code string"),
        ({"pod/mine.py": CLASS}, "pod.mine.Mine", "pod is a package of axolotl-runner itself"),
        ({"tasks/__init__.py": ""}, "tasks.mine.Mine", "tasks is a package of axolotl-runner"),
    ],
)
def test_a_class_that_cannot_be_there_stops_the_run(
    files: dict[str, str], name: str, message: str
) -> None:
    """One finding with its place, before anything is rented."""
    (finding,) = found(files, name)
    assert (finding.level, finding.key) == ("stop", "callbacks")
    assert finding.message.startswith(f"callbacks: {name}: ")
    assert message in finding.message
    assert (finding.line, finding.column) == (3, 3)


def test_a_module_that_the_repository_does_not_have_may_be_installed() -> None:
    """So it is a warning that says what to do."""
    (finding,) = found({"other.py": ""}, "mine.Mine")
    assert finding.level == "warn"
    assert finding.message == "callbacks: mine.Mine: the repository has no mine.py"
    assert "commit it" in finding.hint


def test_in_our_own_repository_our_packages_are_the_users() -> None:
    """A run that was not pushed trains at our root, and so does a fork of it."""
    files = {"pod/plugin.py": "", "tests/faults/mine.py": CLASS}
    assert found(files, "tests.faults.mine.Mine") == []


def test_each_callback_has_its_own_finding() -> None:
    """A task file without any has none."""
    assert [finding.level for finding in found({"a.py": CLASS}, "a.Mine", "a.X", "b.Y")] == [
        "stop",
        "warn",
    ]
    assert callback_findings(parse_task_file("base_model: x\n", "x.yml"), {}.get) == []


def test_a_working_tree_is_read_from_the_root_of_its_repository(tmp_path: Path) -> None:
    """However deep the task file lies; outside of a repository, from its own folder."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "configs" / "deep").mkdir(parents=True)
    (tmp_path / "mine.py").write_text(CLASS)
    file = tmp_path / "configs" / "deep" / "x.yml"
    assert repository_root(file) == tmp_path
    read = reading(repository_root(file))
    assert read("mine.py") == CLASS.encode()
    assert read("configs") is read("gone.py") is None
