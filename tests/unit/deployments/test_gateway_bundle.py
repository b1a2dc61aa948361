"""The code for a pod: everything that it needs, the same bytes each time, and no secret."""

from __future__ import annotations

import os
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

from deployments.gateway.bundle import NoBundle, make_bundle

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
    archive = make_bundle(repository, None, tmp_path / "home" / "bundles")
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
    archive = make_bundle(repository, None, tmp_path / "home" / "bundles")
    assert _names(archive) == [".gitignore", *CODE]


def test_same_content_is_the_same_archive_made_once(repository: Path, tmp_path: Path) -> None:
    """Times don't count; a changed sign does."""
    into = tmp_path / "home" / "bundles"
    first = make_bundle(repository, None, into)
    content = first.read_bytes()
    os.utime(repository / "run.py", (1, 1))
    assert make_bundle(repository, None, into) == first
    first.unlink()
    assert make_bundle(repository, None, into).read_bytes() == content
    (repository / "run.py").write_text("other")
    assert make_bundle(repository, None, into) != first


def test_a_commit_that_the_repository_has_is_sent_instead(repository: Path, tmp_path: Path) -> None:
    """As it was then, without the secrets that it held."""
    _git(repository, "init", "-q")
    _git(repository, "add", "-f", "run.py", "pod/boot.sh", ".env")
    _git(repository, "commit", "-q", "-m", "x")
    commit = _git(repository, "rev-parse", "HEAD")
    (repository / "run.py").write_text("later")
    archive = make_bundle(repository, commit, tmp_path / "home" / "bundles")
    assert _names(archive) == ["pod/boot.sh", "run.py"]
    assert _read(archive, "run.py") == b"run.py"


@pytest.mark.parametrize("commit", ["f" * 40, "HEAD", "--output=/tmp/x", "", "main"])
def test_any_other_commit_counts_as_none(repository: Path, tmp_path: Path, commit: str) -> None:
    """It may be one of the user's own repository, or an attempt at git's options."""
    _git(repository, "init", "-q")
    (repository / "run.py").write_text("now")
    archive = make_bundle(repository, commit, tmp_path / "home" / "bundles")
    assert _read(archive, "run.py") == b"now"


def test_a_home_inside_the_repository_is_not_sent(repository: Path) -> None:
    """It holds the gateway's key and Prefect's database."""
    home = repository / "myhome"
    home.mkdir()
    (home / "prefect.db").write_text("x")
    assert _names(make_bundle(repository, None, home / "bundles")) == CODE


def test_links_stay_links_unless_they_lead_out(repository: Path, tmp_path: Path) -> None:
    """Neither out of the repository nor to what is never sent."""
    (repository / "boot").symlink_to("pod/boot.sh")
    (repository / "secret").symlink_to(".env")
    (repository / "out").symlink_to("../../x")
    (repository / "absolute").symlink_to("/etc/passwd")
    (repository / "folder").symlink_to(".runner/runs")
    archive = make_bundle(repository, None, tmp_path / "home" / "bundles")
    assert _names(archive) == ["boot", *CODE]


def test_a_repository_that_is_too_large_is_refused_with_the_culprits(
    repository: Path, tmp_path: Path
) -> None:
    """Found by sizes alone, before anything is read."""
    (repository / "model.safetensors").write_bytes(b"x" * 5000)
    with pytest.raises(NoBundle, match=r"at most 4000: .*model.safetensors \(5000 bytes\)"):
        make_bundle(repository, None, tmp_path / "home" / "bundles", most_bytes=4000)


def test_a_git_that_fails_sends_nothing(repository: Path, tmp_path: Path) -> None:
    """Without git's word nobody knows which files are ignored, such as secrets.yml."""
    (repository / ".git").mkdir()
    with pytest.raises(NoBundle, match="git ls-files failed"):
        make_bundle(repository, None, tmp_path / "home" / "bundles")


def test_old_archives_are_forgotten(repository: Path, tmp_path: Path) -> None:
    """The newest stay."""
    into = tmp_path / "home" / "bundles"
    for number in range(12):
        (repository / "run.py").write_text(str(number))
        last = make_bundle(repository, None, into)
        past = time.time() - 100 + number
        os.utime(last, (past, past))
    assert last.exists()
    assert len(list(into.iterdir())) == 8
