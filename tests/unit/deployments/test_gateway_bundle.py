"""The code for a pod: everything that it needs, the same bytes each time, and no secret."""

from __future__ import annotations

import os
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

from deployments.gateway.bundle import NoBundle, make_bundle
from runner.push.git import Git
from runner.push.tree import Item, TooLarge
from runner.sources import lay_out, pushed_items, pushed_text, source_root
from tests.histories import History

GIT = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]

SECRETS = [".env", "deploy/.env.local", "prod.env", "tls.pem", "x.key", "id_rsa", ".ssh/config"]
LEFT_OUT = [".runner/gateway.key", "runs/x", ".venv/bin/python", "__pycache__/x.pyc", ".git/config"]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A folder with code, secrets and what grows beside code."""
    folder = tmp_path / "code"
    for name in ["run.py", "pod/boot.sh", "configs/a.yml", *SECRETS, *LEFT_OUT[:-1]]:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    (folder / "pod/boot.sh").chmod(0o755)
    return folder


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [*GIT, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def _names(archive: Path) -> list[str]:
    with tarfile.open(archive) as tar:
        return tar.getnames()


def _read(archive: Path, name: str) -> bytes:
    with tarfile.open(archive) as tar:
        file = tar.extractfile(name)
        assert file is not None
        return file.read()


CODE = ["configs/a.yml", "pod/boot.sh", "run.py"]


def test_without_git_the_folder_is_walked(repository: Path, tmp_path: Path) -> None:
    """Environments, caches, runs and secrets stay here."""
    archive = make_bundle(repository, [], tmp_path / "home" / "bundles")
    assert _names(archive) == CODE
    with tarfile.open(archive) as tar:
        assert [(m.mode, m.mtime, m.uid) for m in tar] == [
            (0o644, 0, 0),
            (0o755, 0, 0),
            (0o644, 0, 0),
        ]


def test_with_git_untracked_files_go_along_and_ignored_ones_do_not(
    repository: Path, tmp_path: Path
) -> None:
    """A tracked secret stays here too, and a file that is tracked but gone is no error."""
    (repository / ".gitignore").write_text("data/\n")
    (repository / "gone.py").write_text("x")
    _git(repository, "init", "-q")
    _git(repository, "add", "-f", "run.py", ".env", "gone.py", ".gitignore")
    (repository / "gone.py").unlink()
    (repository / "data").mkdir()
    (repository / "data/rows").write_text("x")
    archive = make_bundle(repository, [], tmp_path / "home" / "bundles")
    assert _names(archive) == [".gitignore", *CODE]


def test_same_content_is_the_same_archive_made_once(repository: Path, tmp_path: Path) -> None:
    """Times don't count; a changed sign does."""
    into = tmp_path / "home" / "bundles"
    first = make_bundle(repository, [], into)
    content = first.read_bytes()
    os.utime(repository / "run.py", (1, 1))
    assert make_bundle(repository, [], into) == first
    first.unlink()
    assert make_bundle(repository, [], into).read_bytes() == content
    (repository / "run.py").write_text("other")
    assert make_bundle(repository, [], into) != first


def _items(folder: Path, commit: str, **more: int) -> list[Item]:
    return pushed_items(folder, "me/configs", commit, **more)


@pytest.fixture
def copies(tmp_path: Path) -> Path:
    """Our copies of connected repositories; one is there."""
    history = History.new(tmp_path / "theirs")
    history.write("configs/a.yml", "at the commit\n")
    history.write("configs/ds.json", "{}\n")
    history.write("tools/run.sh", "x")
    (history.folder / "tools/run.sh").chmod(0o755)
    history.write(".env", "SECRET=x")
    history.write(".gitattributes", "* text eol=crlf\nconfigs/ds.json export-ignore\n")
    (history.folder / "link").symlink_to("configs/a.yml")
    (history.folder / "out").symlink_to("../../x")
    (history.folder / "secret").symlink_to(".env")
    history.commit()
    copies = tmp_path / "repositories"
    copies.mkdir()
    history.git("clone", "-q", "--bare", ".", str(copies / "me" / "configs.git"))
    return copies


def _commit(copies: Path) -> str:
    return Git(copies / "me/configs.git").text("rev-parse", "HEAD")


def test_the_pushed_commit_lies_below_source_to_the_byte(
    repository: Path, copies: Path, tmp_path: Path
) -> None:
    """H13: the runner's code is this installation's; of theirs no secret and no link that leads
    out. Attributes of theirs change nothing.
    """
    items = _items(copies, _commit(copies))
    archive = make_bundle(repository, items, tmp_path / "home" / "bundles")
    theirs = [".gitattributes", "configs/a.yml", "configs/ds.json", "link", "tools/run.sh"]
    assert _names(archive) == [*CODE, *(f"source/{name}" for name in theirs)]
    assert _read(archive, "source/configs/a.yml") == b"at the commit\n"
    with tarfile.open(archive) as tar:
        assert tar.getmember("source/tools/run.sh").mode == 0o755
        assert tar.getmember("source/link").linkname == "configs/a.yml"


def test_a_pod_of_this_machine_gets_the_same_files(copies: Path, tmp_path: Path) -> None:
    """Once: a trainer may have written there since."""
    items = _items(copies, _commit(copies))
    assert source_root(tmp_path / "run", tmp_path / "code") == tmp_path / "code"
    lay_out(items, tmp_path / "run")
    (tmp_path / "run/source/configs/a.yml").write_text("changed")
    lay_out(items, tmp_path / "run")
    root = source_root(tmp_path / "run", tmp_path / "code")
    assert (root / "configs/a.yml").read_text() == "changed"
    assert (root / "link").readlink() == Path("configs/a.yml")
    assert os.access(root / "tools/run.sh", os.X_OK)
    assert not (root / ".env").exists()


@pytest.mark.parametrize("commit", ["f" * 40, "HEAD", "--output=/tmp/x", "", "main"])
@pytest.mark.parametrize("name", ["me/configs", "me/other", "../configs", "me/..", "None"])
def test_any_other_commit_has_no_files(copies: Path, name: str, commit: str) -> None:
    """It may be an attempt at git's options, or at other folders."""
    assert pushed_items(copies, name, commit) == []


def test_the_task_file_of_a_commit_can_be_read_alone(copies: Path) -> None:
    """For a run that was started with a commit and no content."""
    commit = _commit(copies)
    assert pushed_text(copies, "Me/Configs", commit, "configs/a.yml") == "at the commit\n"
    for path in ("link", "configs", "missing.yml", "configs/*.yml"):
        assert pushed_text(copies, "me/configs", commit, path) is None


def test_a_commit_that_is_too_large_is_refused_by_its_sizes(copies: Path) -> None:
    """With the culprits."""
    with pytest.raises(TooLarge, match=r"configs/a\.yml"):
        _items(copies, _commit(copies), most_bytes=10)


def test_a_home_inside_the_repository_is_not_sent(repository: Path) -> None:
    """It holds the gateway's key and Prefect's database."""
    home = repository / "myhome"
    home.mkdir()
    (home / "prefect.db").write_text("x")
    assert _names(make_bundle(repository, [], home / "bundles")) == CODE


def test_links_stay_links_unless_they_lead_out(repository: Path, tmp_path: Path) -> None:
    """Neither out of the repository nor to what is never sent."""
    (repository / "boot").symlink_to("pod/boot.sh")
    (repository / "secret").symlink_to(".env")
    (repository / "out").symlink_to("../../x")
    (repository / "absolute").symlink_to("/etc/passwd")
    (repository / "folder").symlink_to(".runner/runs")
    archive = make_bundle(repository, [], tmp_path / "home" / "bundles")
    assert _names(archive) == ["boot", *CODE]


def test_a_repository_that_is_too_large_is_refused_with_the_culprits(
    repository: Path, tmp_path: Path
) -> None:
    """Found by sizes alone, before anything is read."""
    (repository / "model.safetensors").write_bytes(b"x" * 5000)
    with pytest.raises(NoBundle, match=r"at most 4000: .*model.safetensors \(5000 bytes\)"):
        make_bundle(repository, [], tmp_path / "home" / "bundles", most_bytes=4000)


def test_a_git_that_fails_sends_nothing(repository: Path, tmp_path: Path) -> None:
    """Without git's word nobody knows which files are ignored, such as secrets.yml."""
    (repository / ".git").mkdir()
    with pytest.raises(NoBundle, match="git ls-files failed"):
        make_bundle(repository, [], tmp_path / "home" / "bundles")


def test_old_archives_are_forgotten(repository: Path, tmp_path: Path) -> None:
    """The newest stay."""
    into = tmp_path / "home" / "bundles"
    for number in range(12):
        (repository / "run.py").write_text(str(number))
        last = make_bundle(repository, [], into)
        past = time.time() - 100 + number
        os.utime(last, (past, past))
    assert last.exists()
    assert len(list(into.iterdir())) == 8
