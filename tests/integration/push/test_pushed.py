"""Which task files a push starts, on real histories: one test for each rule."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deployments.push_event import event_of
from runner.home import REPOSITORY
from runner.push.changes import Push
from runner.push.pushed import TaskFiles, is_task_file, task_files
from runner.push.rules import Rules
from tests.histories import MAIN, TASK, ZERO, History

OTHER = TASK.replace("0.001", "0.002")
THIRD = TASK.replace("0.001", "0.003")


@pytest.fixture
def history(tmp_path: Path) -> History:
    """A repository whose main holds two task files and a README."""
    made = History.new(tmp_path / "repository")
    made.write("README.md", "x")
    made.add("configs/a.yml", "configs/deep/er/b.yaml")
    return made


def _found(history: History, before: str, ref: str = MAIN, rules: Rules | None = None) -> TaskFiles:
    push = Push(ref, before, history.head)
    return task_files(history.plain, push, rules or Rules(), default=MAIN)


def _paths(history: History, before: str, ref: str = MAIN, rules: Rules | None = None) -> list[str]:
    return [file.path for file in _found(history, before, ref, rules).files]


def test_a_changed_and_a_new_file_start_and_nothing_else_does(history: History) -> None:
    """Neither a file elsewhere nor another kind of file."""
    before = history.head
    history.write("configs/a.yml", OTHER)
    history.write("configs/notes.md", OTHER)
    history.write("docs/x.yml")
    history.add("configs/new file.yml")
    assert _paths(history, before) == ["configs/a.yml", "configs/new file.yml"]


def test_all_commits_of_a_push_count(history: History) -> None:
    """Not only the last one."""
    before = history.head
    history.add("configs/a.yml", text=OTHER)
    history.add("configs/c.yml")
    history.add("README.md", text="y")
    assert _paths(history, before) == ["configs/a.yml", "configs/c.yml"]


def test_the_first_push_of_a_branch_starts_what_the_branch_adds(history: History) -> None:
    """H09: before is forty zeros; not every task file of the repository."""
    history.git("checkout", "-q", "-b", "new")
    history.add("configs/c.yml")
    history.git("checkout", "-q", "main")
    history.add("configs/later.yml")
    history.git("checkout", "-q", "new")
    rules = Rules(branches=("*",))
    assert _paths(history, ZERO, "refs/heads/new", rules) == ["configs/c.yml"]


def test_a_branch_that_is_where_main_is_starts_nothing(history: History) -> None:
    """H09: nothing was added."""
    assert _paths(history, ZERO, "refs/heads/new", Rules(branches=("*",))) == []


def test_the_first_push_of_a_repository_starts_what_it_holds(history: History) -> None:
    """H09: compared with nothing."""
    assert _paths(history, ZERO) == ["configs/a.yml", "configs/deep/er/b.yaml"]


def test_a_branch_without_a_common_commit_is_compared_with_nothing(history: History) -> None:
    """An orphan branch has left main nowhere."""
    history.git("checkout", "-q", "--orphan", "alone")
    history.git("rm", "-rfq", ".")
    history.add("configs/z.yml")
    assert _paths(history, ZERO, "refs/heads/alone", Rules(branches=("*",))) == ["configs/z.yml"]


def test_a_pure_rename_starts_nothing(history: History) -> None:
    """H10: the same content under another name."""
    before = history.head
    history.git("mv", "configs/a.yml", "configs/renamed.yml")
    history.commit()
    found = _found(history, before)
    assert found.files == ()
    assert [(each.path, each.reason) for each in found.passed_over] == [
        ("configs/renamed.yml", "only its name changed")
    ]


def test_a_rename_with_a_change_starts_once_under_the_new_name(history: History) -> None:
    """H10: the old name starts nothing."""
    before = history.head
    history.git("mv", "configs/a.yml", "configs/renamed.yml")
    history.add("configs/renamed.yml", text=OTHER)
    assert _paths(history, before) == ["configs/renamed.yml"]


def test_a_copy_is_a_new_task_file_and_a_draft_that_moves_in_starts(history: History) -> None:
    """A rename is pure only within the paths that count."""
    before = history.add("drafts/d.yml", text=THIRD)
    history.write("configs/copy.yml", TASK)
    history.git("mv", "drafts/d.yml", "configs/d.yml")
    history.commit()
    assert _paths(history, before) == ["configs/copy.yml", "configs/d.yml"]


def test_one_rename_takes_one_copy_along(history: History) -> None:
    """Of two files with the content of the one that went, one is new."""
    before = history.head
    history.git("mv", "configs/a.yml", "configs/one.yml")
    (history.folder / "configs/deep/er/b.yaml").write_text(OTHER)
    history.add("configs/two.yml", text=TASK)
    assert len(_paths(history, before)) == 2  # b.yaml, and one.yml or two.yml


def test_a_deleted_file_a_mode_and_an_empty_push_start_nothing(history: History) -> None:
    """Nothing to train, or nothing new."""
    before = history.head
    history.git("rm", "-q", "configs/a.yml")
    (history.folder / "configs/deep/er/b.yaml").chmod(0o755)
    history.commit()
    assert _paths(history, before) == []
    assert _paths(history, history.head) == []


def test_a_force_push_starts_what_differs_from_what_was_there(history: History) -> None:
    """The commit that was replaced is still known here."""
    old = history.add("configs/a.yml", text=OTHER)
    history.git("reset", "-q", "--hard", "HEAD^")
    history.add("configs/c.yml")
    assert _paths(history, old) == ["configs/a.yml", "configs/c.yml"]


def test_a_force_push_over_a_commit_that_is_gone_starts_the_tips_own_changes(
    history: History,
) -> None:
    """Never everything, and whoever still has the commit is asked to look."""
    history.add("configs/b.yml")
    history.add("configs/c.yml")
    found = _found(history, "ab" * 20)
    assert [file.path for file in found.files] == ["configs/c.yml"]
    assert found.guessed
    event = event_of(history.plain, "me/x", Push(MAIN, "ab" * 20, history.head))
    assert event is not None
    assert event["payload"]["files"] is None


def test_a_force_push_of_a_branch_over_a_gone_commit_is_compared_with_main(
    history: History,
) -> None:
    """Where it left the default branch."""
    history.git("checkout", "-q", "-b", "work")
    history.add("configs/b.yml")
    history.add("configs/c.yml")
    rules = Rules(branches=("*",))
    assert _paths(history, "ab" * 20, "refs/heads/work", rules) == [
        "configs/b.yml",
        "configs/c.yml",
    ]


def test_a_merge_starts_what_it_brings(history: History) -> None:
    """Once, however many commits it brings, and under the commit that made the file."""
    before = history.head
    history.git("checkout", "-q", "-b", "work")
    history.add("configs/c.yml", text=OTHER)
    made = history.add("configs/c.yml", text=THIRD)
    history.git("checkout", "-q", "main")
    history.add("README.md", text="y")
    history.git("merge", "-q", "--no-ff", "-m", "merge", "work")
    (file,) = _found(history, before).files
    assert (file.path, file.origin) == ("configs/c.yml", made)


def test_more_than_300_files_are_all_seen(history: History) -> None:
    """The lists of GitHub's API end at 300."""
    before = history.head
    history.add(*(f"configs/many/{number}.yml" for number in range(320)))
    assert len(_paths(history, before)) == 320


NAMES = ["my run.yml", "día.yml", "训练.yaml", "a'b\"c.yml", "-rf.yml", ":(top)x.yml", "[a]*.yml"]


def test_names_with_spaces_and_other_letters_arrive_byte_for_byte(history: History) -> None:
    """H11: git quotes them unless it is told not to."""
    before = history.head
    paths = [f"configs/x/{name}" for name in NAMES]
    for number, path in enumerate(paths):
        history.write(path, TASK + f"seed: {number}\n")
    commit = history.commit()
    found = _found(history, before).files
    assert [file.path for file in found] == sorted(paths)
    assert {file.origin for file in found} == {commit}


@pytest.mark.parametrize("name", ["$(touch PWNED).yml", "`touch PWNED`.yml", "a;touch PWNED;.yml"])
def test_shell_text_in_a_name_is_plain_data(name: str, history: History) -> None:
    """H12: through the very command that the workflow and the hook call."""
    before = history.head
    history.add(f"configs/{name}")
    words = ["--repository", "me/x", "--ref", MAIN, "--before", before, "--after", history.head]
    done = subprocess.run(
        [sys.executable, "-m", "deployments.push_event", *words],
        cwd=history.folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=True,
    )
    (file,) = json.loads(done.stdout)["payload"]["files"]
    assert file["path"] == f"configs/{name}"
    assert not list(history.folder.rglob("PWNED"))


def test_a_name_that_is_no_utf_8_or_has_a_line_in_it_is_passed_over(history: History) -> None:
    """With the reason, and in a form that can be printed."""
    before = history.head
    for raw in (b"configs/\xff.yml", b"configs/a\nb.yml"):
        with open(os.path.join(os.fsencode(history.folder), raw), "w") as file:
            file.write(OTHER)
    history.commit()
    found = _found(history, before)
    assert found.files == ()
    assert [(each.path, each.reason) for each in found.passed_over] == [
        ("configs/a\nb.yml", "its name has a control character"),
        ("configs/\\xff.yml", "its name is not UTF-8"),
    ]


def test_symbolic_links_and_submodules_are_none(history: History) -> None:
    """A link could lead anywhere."""
    before = history.head
    (history.folder / "configs/link.yml").symlink_to("a.yml")
    (history.folder / "configs/away.yml").symlink_to("/etc/passwd")
    history.git("update-index", "--add", "--cacheinfo", f"160000,{history.head},configs/sub.yml")
    history.git("add", "configs/link.yml", "configs/away.yml")
    history.git("commit", "-q", "-m", "x")
    found = _found(history, before)
    assert found.files == ()
    assert [each.reason for each in found.passed_over] == [
        "a symbolic link",
        "a symbolic link",
        "a submodule",
    ]


def test_a_link_that_becomes_a_file_starts(history: History) -> None:
    """Git calls that a change of type."""
    (history.folder / "configs/link.yml").symlink_to("a.yml")
    before = history.commit()
    (history.folder / "configs/link.yml").unlink()
    history.add("configs/link.yml", text=OTHER)
    assert _paths(history, before) == ["configs/link.yml"]


LOOK_ALIKES = {
    "accelerate": "compute_environment: LOCAL_MACHINE\nnum_processes: 2\n",
    "merge": "merge_method: slerp\nbase_model: x\nslices: []\n",
    "compose": "services: {a: {image: x}}\n",
    "list": "- base_model: x\n",
    "nested": "run:\n  base_model: x\n  datasets: []\n",
    "empty": "",
}


@pytest.mark.parametrize("kind", LOOK_ALIKES)
def test_yaml_that_is_no_task_file_starts_nothing(kind: str, history: History) -> None:
    """It is not called a bad one either."""
    before = history.head
    history.add("configs/x.yml", text=LOOK_ALIKES[kind])
    found = _found(history, before)
    assert found.files == ()
    assert [each.reason for each in found.passed_over] == ["no task file of axolotl"]


@pytest.mark.parametrize(
    "text",
    [
        "base_model: x\n  datasets: [\nlearning_rate: 1\n",
        "runner: {cloud: local}\n",
        "runpod:\n  gpu: x\n",
        '{"base_model": "x",\n"datasets": []}',
        "\ufeffbase_model: x\nadapter: lora\n",
        "'base_model': x\r\n'datasets': []\r\n",
    ],
)
def test_a_broken_task_file_is_one_nevertheless(text: str) -> None:
    """So that its faults are told, not passed over."""
    assert is_task_file(text.encode())


def test_branches_and_paths_are_set_by_patterns(history: History) -> None:
    """The last pattern that fits decides; a tag is no branch."""
    before = history.head
    history.add("tasks/a.yml", "tasks/old/b.yml", "configs/c.yml", text=OTHER)
    rules = Rules(branches=("main", "release/*"), paths=("tasks/**/*.yml", "!tasks/old/**"))
    assert _paths(history, before, rules=rules) == ["tasks/a.yml"]
    assert _paths(history, before, "refs/heads/release/1", rules) == ["tasks/a.yml"]
    assert _paths(history, before, "refs/heads/release/1/x", rules) == []
    assert _paths(history, before, "refs/heads/maine", rules) == []
    assert _paths(history, before, "refs/tags/main", rules) == []


def test_a_branch_that_is_deleted_starts_nothing(history: History) -> None:
    """after is forty zeros."""
    push = Push(MAIN, history.head, ZERO)
    assert task_files(history.plain, push, Rules(), default=MAIN).files == ()


def test_runner_skip_starts_nothing_of_what_its_commit_changed_last(history: History) -> None:
    """Another commit of the same push starts its own."""
    before = history.head
    history.add("configs/a.yml", text=OTHER)
    history.add("configs/c.yml", message="try\n\nRunner: skip")
    assert _paths(history, before) == ["configs/a.yml"]
    history.add("configs/a.yml", text=THIRD, message="Typo\n\nSigned-off-by: x\nRunner: Skip")
    assert _paths(history, before) == []
    history.add("configs/a.yml", text=OTHER + "seed: 1\n", message="Runner: skip is only talked of")
    assert _paths(history, before) == ["configs/a.yml"]


def test_runner_rerun_starts_what_was_changed_last_again(history: History) -> None:
    """An empty commit is enough; its own commit names the run, so it starts once."""
    history.add("configs/a.yml", text=OTHER)
    before = history.add("README.md", text="y")
    again = history.commit("Again\n\nRunner: rerun")
    (file,) = _found(history, before).files
    assert (file.path, file.origin) == ("configs/a.yml", again)


def test_runner_rerun_can_name_files(history: History) -> None:
    """By path or pattern, of the paths that count."""
    before = history.head
    history.commit("Again\n\nRunner: rerun configs/deep/**\nRunner: rerun README.md")
    assert _paths(history, before) == ["configs/deep/er/b.yaml"]


def test_an_event_has_the_content_hash_of_each_file(history: History) -> None:
    """Git's own, so anybody can check it."""
    before = history.head
    history.add("configs/a.yml", text=OTHER)
    push = Push(MAIN, before, history.head)
    event = event_of(history.plain, "me/x", push, "main")
    assert event is not None
    blob = history.git("rev-parse", "HEAD:configs/a.yml")
    assert event["payload"] == {
        "repository": "me/x",
        "ref": MAIN,
        "before": before,
        "after": history.head,
        "files": [{"path": "configs/a.yml", "blob": blob}],
    }
    assert event["resource"] == {"prefect.resource.id": "github.repository.me/x"}
    assert event["id"] == (event_of(history.plain, "me/x", push) or {})["id"]


def test_a_push_that_starts_nothing_has_no_event(history: History) -> None:
    """The workflow then posts nothing."""
    before = history.head
    history.add("README.md", text="y")
    assert event_of(history.plain, "me/x", Push(MAIN, before, history.head)) is None
