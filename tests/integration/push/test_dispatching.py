"""What a push event comes to, with real repositories and no Prefect server."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest

from blocks.repository import Repository
from runner.push.changes import Push
from runner.push.rules import Rules
from tasks import dispatching
from tasks.dispatching import Plan, Refused, Told, Wanted, plan, read_event, start
from tests.histories import MAIN, TASK, ZERO, History

OTHER = TASK.replace("0.001", "0.002")
COMMIT, BLOB = "ab" * 20, "cd" * 20


@dataclass
class Remote:
    """A repository that is pushed to, and how it is connected here."""

    work: History
    connected: Repository

    def push(self, *arguments: str) -> str:
        """Push what is checked out."""
        self.work.git("push", "-q", *arguments, self.connected.url, "HEAD")
        return self.work.head


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Remote:
    """With one task file on main; our copies lie in a home of their own."""
    monkeypatch.setenv("AXR_HOME", str(tmp_path / "home"))
    History.new(tmp_path / "bare.git").git("config", "core.bare", "true")
    work = History.new(tmp_path / "work")
    work.add("configs/a.yml")
    made = Remote(work, Repository("me/x", str(tmp_path / "bare.git")))
    made.push()
    return made


def _plan(remote: Remote, before: str, after: str, ref: str = MAIN, **more: Any) -> Plan:
    told = Told("me/x", Push(ref, before, after), more.get("blobs"))
    return plan(remote.connected, told, more.get("rules", Rules()))


def test_each_file_has_the_content_of_the_pushed_commit(remote: Remote) -> None:
    """H13: a later push to the same file changes nothing of what an earlier one starts."""
    before = remote.work.head
    remote.work.add("configs/a.yml", text=OTHER)
    first = remote.push()
    remote.work.add("configs/a.yml", text=TASK + "seed: 2\n")
    second = remote.push()
    (one,) = _plan(remote, before, first).wanted
    (two,) = _plan(remote, first, second).wanted
    assert (one.content, two.content) == (OTHER, TASK + "seed: 2\n")
    assert one.key != two.key


def test_one_bad_file_does_not_stop_the_others(remote: Remote) -> None:
    """It is told with file and line; nothing of it is started."""
    before = remote.work.head
    for number in range(4):
        remote.work.write(f"configs/good{number}.yml", TASK + f"seed: {number}\n")
    remote.work.write("configs/bad.yml", TASK + "runner: {max_hours: soon}\n")
    remote.work.commit()
    found = _plan(remote, before, remote.push())
    assert [each.path for each in found.wanted] == [f"configs/good{n}.yml" for n in range(4)]
    (bad,) = found.bad
    assert bad.path == "configs/bad.yml"
    assert bad.reason.startswith("configs/bad.yml:4:")


@pytest.mark.parametrize("content", [b"base_model: \xff\ndatasets: []\n", b"#" * 1_100_000])
def test_a_file_that_is_no_text_or_too_big_is_bad(remote: Remote, content: bytes) -> None:
    """And one message says so."""
    before = remote.work.head
    (remote.work.folder / "configs/a.yml").write_bytes(content)
    remote.work.commit()
    (bad,) = _plan(remote, before, remote.push()).bad
    assert bad.path == "configs/a.yml"


def test_the_files_that_it_names_are_looked_for_in_the_commit(
    remote: Remote, caplog: pytest.LogCaptureFixture
) -> None:
    """Beside it, then from the root: an LFS pointer is no data, a missing file is a warning."""
    before = remote.work.head
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:x\nsize 5\n"
    remote.work.write("configs/big.jsonl", pointer)
    remote.work.write("data/rows.jsonl", "{}")
    remote.work.write("configs/lfs.yml", TASK.replace("data.jsonl", "big.jsonl"))
    remote.work.write("configs/there.yml", TASK.replace("data.jsonl", "data/rows.jsonl"))
    remote.work.write("configs/gone.yml", TASK + "deepspeed: ./ds.json\n")
    remote.work.commit()
    found = _plan(remote, before, remote.push())
    assert [each.path for each in found.wanted] == ["configs/gone.yml", "configs/there.yml"]
    (bad,) = found.bad
    assert bad.path == "configs/lfs.yml"
    assert "of configs/big.jsonl the commit holds only a Git LFS pointer" in bad.reason
    assert "configs/gone.yml names ./ds.json, which is not in the commit" in caplog.text
    assert "there.yml names" not in caplog.text


def test_the_same_push_in_other_pieces_has_the_same_keys(remote: Remote) -> None:
    """Told once as a whole, or commit by commit, late, or by who looks at branches."""
    before = remote.work.head
    remote.work.add("configs/b.yml", text=OTHER)
    middle = remote.push()
    remote.work.add("configs/c.yml")
    after = remote.push()
    whole = {each.key for each in _plan(remote, before, after).wanted}
    pieces = {each.key for each in _plan(remote, middle, after).wanted}
    pieces |= {each.key for each in _plan(remote, before, middle).wanted}
    assert len(whole) == 2
    assert whole == pieces
    assert whole < {each.key for each in _plan(remote, ZERO, after).wanted}


def test_a_rerun_has_a_key_of_its_own(remote: Remote) -> None:
    """Which is the same when the rerun is told twice."""
    (first,) = _plan(remote, ZERO, remote.work.head).wanted
    before = remote.work.head
    remote.work.commit("Again\n\nRunner: rerun")
    after = remote.push()
    (again,) = _plan(remote, before, after).wanted
    assert again.path == first.path
    assert again.key != first.key
    assert _plan(remote, before, after).wanted == (again,)


def test_a_commit_that_was_never_pushed_is_refused(remote: Remote) -> None:
    """A forged event names one."""
    never = remote.work.add("configs/a.yml", text=OTHER)
    remote.connected.fetch()
    with pytest.raises(Refused, match="has no commit"):
        _plan_without_waiting(remote, never)


def _plan_without_waiting(remote: Remote, after: str) -> Plan:
    looks = pytest.MonkeyPatch()
    looks.setattr("blocks.repository.LOOKS", 1)
    try:
        return _plan(remote, ZERO, after)
    finally:
        looks.undo()


def test_a_commit_of_another_branch_or_of_before_a_force_push_is_refused(remote: Remote) -> None:
    """It is in the repository, but not part of the branch that is told of."""
    remote.work.git("checkout", "-q", "-b", "work")
    remote.work.add("configs/b.yml")
    elsewhere = remote.push()
    with pytest.raises(Refused, match="not part of refs/heads/main"):
        _plan(remote, ZERO, elsewhere)
    remote.work.git("checkout", "-q", "main")
    remote.work.add("configs/c.yml")
    taken = remote.push()
    _plan(remote, ZERO, taken)
    remote.work.git("reset", "-q", "--hard", "HEAD^")
    remote.work.add("configs/d.yml", text=OTHER)
    kept = remote.push("--force")
    with pytest.raises(Refused, match="a force push has taken it away"):
        _plan(remote, ZERO, taken)
    paths = [each.path for each in _plan(remote, taken, kept).wanted]
    assert paths == ["configs/d.yml"]


def test_a_branch_that_does_not_count_is_not_even_looked_at(
    remote: Remote, caplog: pytest.LogCaptureFixture
) -> None:
    """The rules are those of the control side, whatever the workflow's are."""
    caplog.set_level(logging.INFO)
    assert _plan(remote, ZERO, remote.work.head, "refs/heads/work") == Plan()
    assert "no branch that starts runs (main)" in caplog.text
    assert not remote.connected.copy.exists()


def test_what_an_event_says_of_files_is_only_compared(
    remote: Remote, caplog: pytest.LogCaptureFixture
) -> None:
    """What the push did not change does not start; what it changed starts though not named."""
    before = remote.work.head
    remote.work.write("configs/b.yml", OTHER)
    remote.work.add("configs/c.yml")
    after = remote.push()
    told = {"configs/a.yml": BLOB, "configs/c.yml": BLOB}
    found = _plan(remote, before, after, blobs=told)
    assert [each.path for each in found.wanted] == ["configs/b.yml", "configs/c.yml"]
    assert "configs/a.yml was told of, but this push does not start it" in caplog.text
    assert "configs/b.yml was not told of" in caplog.text
    assert "configs/c.yml has other content" in caplog.text


GOOD: dict[str, Any] = {
    "repository": "me/x",
    "ref": MAIN,
    "before": ZERO,
    "after": COMMIT,
    "files": [{"path": "configs/a.yml", "blob": BLOB}],
    "event_resource": "github.repository.me/x",
}


def test_an_event_in_the_right_form_is_read() -> None:
    """All of it is used."""
    assert read_event(**GOOD) == Told("me/x", Push(MAIN, ZERO, COMMIT), {"configs/a.yml": BLOB})
    assert read_event(**{**GOOD, "files": None}).blobs is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"event_resource": "github.repository.me/y"},
        {"event_resource": 3},
        {"repository": None},
        {"repository": "me/x/y"},
        {"repository": "me/.."},
        {"repository": ["me/x"]},
        {"ref": "main"},
        {"ref": "refs/heads/a\nb"},
        {"ref": None},
        {"before": None},
        {"after": "HEAD"},
        {"after": "--output=x"},
        {"after": 3},
        {"files": {}},
        {"files": "configs/a.yml"},
        {"files": ["configs/a.yml"]},
        {"files": [{"path": "configs/a.yml", "blob": "x"}]},
        {"repository": "x" * 100_000},
    ],
)
def test_a_malformed_event_is_refused_with_a_short_reason(wrong: dict[str, Any]) -> None:
    """A wrong resource, too; the reason is one line of plain letters."""
    with pytest.raises(Refused) as refused:
        read_event(**{**GOOD, **wrong})
    assert len(str(refused.value)) < 400
    assert str(refused.value).isascii()
    assert "\n" not in str(refused.value)


@dataclass
class Server:
    """The part of Prefect's API that starts runs; keeps idempotency keys as that does."""

    runs: dict[str, SimpleNamespace] = field(default_factory=dict)
    created: int = 0

    def read_deployment_by_name(self, name: str) -> SimpleNamespace:
        """The deployment of finetune."""
        assert name == "finetune/finetune"
        return SimpleNamespace(id=uuid4(), tags=["axolotl-runner"])

    def read_flow_runs(self, *, flow_run_filter: Any) -> list[SimpleNamespace]:
        """Those with one of the keys."""
        keys = flow_run_filter.idempotency_key.any_
        return [run for key, run in self.runs.items() if key in keys]

    def create_flow_run_from_deployment(
        self, deployment: UUID, *, idempotency_key: str, **facts: Any
    ) -> SimpleNamespace:
        """A new run, or the one that has the key."""
        self.created += 1
        made = SimpleNamespace(id=uuid4(), idempotency_key=idempotency_key, **facts)
        return self.runs.setdefault(idempotency_key, made)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """In the place of the real one."""
    made = Server()
    monkeypatch.setattr(dispatching, "api", lambda: made)
    return made


def test_three_files_start_three_runs_and_a_redelivery_none(server: Server) -> None:
    """H54: three, then still three: not six, and not one."""
    wanted = [Wanted(f"configs/{n}.yml", TASK, f"push-{n}") for n in range(3)]
    first = start("me/x", COMMIT, wanted)
    again = start("me/x", COMMIT, wanted)
    assert len(server.runs) == server.created == 3
    assert [each.new for each in first] == [True] * 3
    assert [each.new for each in again] == [False] * 3
    assert [each.run for each in first] == [each.run for each in again]
    run = server.runs["push-1"]
    assert run.parameters == {
        "task_file": "configs/1.yml",
        "repository": "me/x",
        "commit": COMMIT,
        "content": TASK,
    }
    assert run.tags == ["axolotl-runner", "repository:me/x", f"commit:{COMMIT[:12]}"]
