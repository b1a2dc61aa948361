"""The hook of a bare repository, and what `connect` puts there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from blocks.repository import Repository
from deployments.connecting import HOOK, install_hook
from runner.errors import ConfigError
from tests.histories import History


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A bare repository, and a home where no control side is up."""
    monkeypatch.setenv("AXR_HOME", str(tmp_path / "home"))
    work = History.new(tmp_path / "work")
    work.git("init", "-q", "--bare", str(tmp_path / "bare git"))
    return Repository("me/configs", str(tmp_path / "bare git"))


def test_a_push_never_fails_for_a_control_side_that_is_away(
    bare: Repository, tmp_path: Path
) -> None:
    """H12, too: names of branches and files are data; it says how to tell of the push later."""
    hook = install_hook(bare)
    assert os.access(hook, os.X_OK)
    work = History(tmp_path / "work")
    work.add("configs/$(touch PWNED).yml")
    name = "refs/heads/$(touch${IFS}PWNED)"
    done = subprocess.run(
        ["git", "push", bare.url, f"HEAD:{name}", "HEAD:refs/tags/v1"],
        cwd=work.folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.count("axolotl-runner was not told of this push: it is not running") == 1
    assert f"--ref '{name}'" in done.stderr
    assert not list(tmp_path.rglob("PWNED"))
    assert work.git("ls-remote", bare.url, name)


def test_the_hook_can_be_installed_again_but_not_over_another(bare: Repository) -> None:
    """Somebody else's hook stays."""
    hook = install_hook(bare)
    assert install_hook(bare).read_bytes() == HOOK.read_bytes()
    hook.write_text("#!/bin/sh\necho mine\n")
    with pytest.raises(ConfigError, match="somebody else's hook"):
        install_hook(bare)
    assert "mine" in hook.read_text()


@pytest.mark.parametrize("url", ["https://github.com/me/configs.git", "/nowhere"])
def test_only_a_bare_repository_of_this_machine_gets_a_hook(tmp_path: Path, url: str) -> None:
    """With one sentence."""
    with pytest.raises(ConfigError):
        install_hook(Repository("me/configs", url))
    work = History.new(tmp_path / "work")
    with pytest.raises(ConfigError, match="no bare repository"):
        install_hook(Repository("me/configs", str(work.folder)))
