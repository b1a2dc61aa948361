"""`axolotl-runner connect`: let pushes to a repository start runs; say what to set on its side."""

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from blocks.repository import Repository, connect
from runner.errors import ConfigError, TryAgain
from runner.gateway import PUBLIC
from runner.home import REPOSITORY, home
from runner.push.git import Git, GitError
from runner.tokens import gateway_key, push_token

HOOK = REPOSITORY / "deployments" / "hooks" / "post-receive"
OURS = b"axolotl-runner"


def connect_repository(name: str, *, url: str | None, hook: bool, days: int) -> int:
    """Connect it, try to read it, install the hook if asked; print what GitHub needs."""
    repository = connect(name, url)
    print(f"{repository.name} is connected ({repository.url})")
    try:
        repository.fetch()
    except TryAgain as error:
        print(f"but it can't be read yet: {error}", file=sys.stderr)
    if hook:
        print(f"hook: {install_hook(repository)}")
        return 0
    expires = time.time() + days * 86_400
    token = push_token(gateway_key(home().gateway_key), repository.name, expires)
    until = datetime.fromtimestamp(expires, UTC).date()
    address = os.environ.get(PUBLIC, "").rstrip("/") or f"(set {PUBLIC} for `up`, README)"
    print("In its settings on GitHub, under Secrets and variables, Actions:")
    print(f"  secret    AXR_PUSH_TOKEN   {token}  (until {until})")
    print(f"  variable  AXR_GATEWAY_URL  {address}")
    return 0


def install_hook(repository: Repository) -> Path:
    """Put our post-receive hook into a bare repository of this machine; ConfigError."""
    folder = Path(repository.url.removeprefix("file://")).resolve()
    git = Git(folder)
    try:
        if git.text("rev-parse", "--is-bare-repository") != "true":
            raise ConfigError(f"{folder} is no bare repository (git init --bare)")
        file = folder / "hooks" / "post-receive"
        if file.exists() and OURS not in file.read_bytes():
            raise ConfigError(f"{file} is somebody else's hook: call {HOOK} from there")
        settings = {
            "repository": repository.name,
            "code": str(REPOSITORY),
            "home": str(home().path),
            "python": sys.executable,
        }
        for key, value in settings.items():
            git.run("config", f"axr.{key}", value)
    except (GitError, OSError) as error:
        raise ConfigError(f"no hook in {folder}: {error}") from error
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(HOOK.read_bytes())
    file.chmod(0o755)
    return file
