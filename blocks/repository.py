"""The repositories that pushes may come from, and our own copy of each.

A repository is connected by a block (blocks/connected.py, prefect-github's with a name). Events
about others start nothing, whoever signs them. prefect-github's own way to read is not used: it
writes the token into git's command line and into the clone's remote, and knows no commits. Here git
asks a helper for the token, which has it from its environment, and only for the repository's host.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from prefect.exceptions import ObjectNotFound
from pydantic import SecretStr

from runner.errors import ConfigError, TryAgain
from runner.home import home
from runner.locks import hold
from runner.push.changes import Push
from runner.push.git import Git, GitError
from runner.push.rules import HEADS
from runner.secrets import learn
from runner.sources import COPIES, copy_of
from runner.tokens import is_repository

if TYPE_CHECKING:
    from blocks.connected import ConnectedRepository

SLUG = "connected-repository"
TOKEN = "AXR_GITHUB_TOKEN"  # where the block holds none
FETCH_WITHIN = 600.0
# GitHub tells of a push a moment before all of its servers have it.
LOOKS, LOOK_AGAIN_AFTER = 4, 3.0
_HELPER = '!f() { echo username=x-access-token; echo "password=$AXR_GIT_PASSWORD"; }; f'


@dataclass(frozen=True)
class Repository:
    """A connected repository: owner/name, where git finds it, and the token for it, if any."""

    name: str
    url: str
    token: SecretStr | None = field(default=None, repr=False)

    @property
    def copy(self) -> Path:
        """Our bare copy of it."""
        return copy_of(home().path / COPIES, self.name)

    def git(self) -> Git:
        """Git in our copy, with the token where it is needed and nowhere else."""
        secret = self.token.get_secret_value() if self.token else ""
        return Git(self.copy, _credentials(self.url, secret), (secret,) if secret else ())

    def fetch(self) -> Git:
        """Bring all branches as they are now; TryAgain when the other side does not answer."""
        self.copy.mkdir(parents=True, exist_ok=True)
        git = self.git()
        with hold(self.copy / "axr.lock", wait=True):
            try:
                if not (self.copy / "HEAD").exists():
                    git.run("init", "--quiet", "--bare")
                git.run(
                    "fetch", "--quiet", "--prune", "--force", "--no-tags", "--no-write-fetch-head",
                    self.url, "+refs/heads/*:refs/heads/*", timeout=FETCH_WITHIN,
                )  # fmt: skip
            except GitError as error:
                raise TryAgain(f"{self.name} can't be read: {error}") from None
        return git

    def with_commit(self, commit: str, *, sleep: Callable[[float], None] = time.sleep) -> Git:
        """Our copy, with this commit in it for good; ConfigError when the repository has it not."""
        git = self.git()
        for look in range(LOOKS):
            if look > 1:
                sleep(LOOK_AGAIN_AFTER)
            if look:
                self.fetch()
            if self.copy.exists() and git.has_commit(commit):
                # A later force push must not take it from runs that train it.
                git.run("update-ref", f"refs/axr/{commit}", commit)
                return git
        raise ConfigError(f"{self.name} has no commit {commit} on any branch")

    def default_branch(self) -> str:
        """The full name of the default branch, as the other side says."""
        said = self.git().text("ls-remote", "--symref", self.url, "HEAD", timeout=FETCH_WITHIN)
        first = said.partition("\n")[0]
        if first.startswith("ref: ") and first.endswith("\tHEAD"):
            return first.removeprefix("ref: ").removesuffix("\tHEAD")
        return f"{HEADS}main"


def is_on_branch(git: Git, push: Push) -> bool:
    """True when the pushed commit is part of its branch as it is now."""
    return git.holds("merge-base", "--is-ancestor", push.after, push.ref)


def find_repository(name: str) -> Repository | None:
    """The connected repository of this name (owner/repo, in any case), None when there is none."""
    return next((each for each in connected() if each.name.lower() == name.lower()), None)


def connected() -> list[Repository]:
    """All connected repositories."""
    from blocks.connected import ConnectedRepository
    from tasks.api import api

    try:
        documents = api().read_block_documents_by_type(SLUG, include_secrets=False)
    except ObjectNotFound:  # nothing was registered yet
        return []
    # _sync: the answer and not a coroutine, also where an event loop runs.
    blocks = [ConnectedRepository.load(str(each.name), _sync=True) for each in documents]
    return [_of_block(block) for block in blocks if is_repository(block.full_name)]


def connect(name: str, url: str | None = None) -> Repository:
    """Make the block of this repository, or change its address; ConfigError for a bad name."""
    from blocks.connected import ConnectedRepository

    if not is_repository(name):
        raise ConfigError(f"a repository is owner/name, not {name!r}")
    address = url or f"https://github.com/{name}.git"
    if urlsplit(address).password or (urlsplit(address).username or "git") != "git":
        raise ConfigError(
            f"no credentials in the address: set {TOKEN}, or choose them in the block"
        )
    known = find_repository(name)
    title = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if known is not None:
        block = ConnectedRepository.load(title, _sync=True)
        block.repository_url = address
    else:
        block = ConnectedRepository(full_name=name, repository_url=address)
    block.save(title, overwrite=known is not None, _sync=True)
    return _of_block(block)


def _of_block(block: ConnectedRepository) -> Repository:
    token = block.credentials.token if block.credentials else None
    own = os.environ.get(TOKEN, "").strip()
    used = token or (SecretStr(own) if own else None)
    if used:
        learn({TOKEN: used.get_secret_value()})
    return Repository(block.full_name, block.repository_url, used)


def _credentials(url: str, secret: str) -> dict[str, str]:
    """The environment that lets git use the token: for this host, over TLS (or on this machine)."""
    parts = urlsplit(url)
    settings = {"GIT_SSH_COMMAND": "ssh -o BatchMode=yes"}
    local = parts.hostname in ("127.0.0.1", "localhost")
    if not secret or not (parts.scheme == "https" or (parts.scheme == "http" and local)):
        return settings
    key = f"credential.{parts.scheme}://{parts.netloc}.helper"
    pairs = (("credential.helper", ""), (key, ""), (key, _HELPER))
    for number, (name, value) in enumerate(pairs):
        settings |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return {**settings, "GIT_CONFIG_COUNT": str(len(pairs)), "AXR_GIT_PASSWORD": secret}
