"""Finding pushes by looking: the tips of the branches now and at the last look.

Where they were is kept in a Prefect variable for each repository. The event goes out before that is
written, so a look that dies in between is repeated, and its event is the same one.
"""

from __future__ import annotations

import hashlib
from functools import partial
from typing import Any

from prefect import task
from prefect.variables import Variable

from blocks.logs import log
from blocks.repository import Repository, connected, find_repository
from runner.errors import ConfigError, TryAgain
from runner.push.changes import Push
from runner.push.event import push_event
from runner.push.git import Git
from runner.push.rules import HEADS, Rules, read_rules
from tasks.api import api, write


@task
def look_at(name: str | None) -> int:
    """Report what moved in this repository, or in all; one that can't be read is only a warning."""
    found = [find_repository(name)] if name else connected()
    if None in found:
        raise ConfigError(f"{name} is not connected: axolotl-runner connect {name}")
    events = 0
    for repository in found:
        assert repository is not None, "looked at above"
        try:
            events += _look(repository, read_rules())
        except TryAgain as away:
            log().warning("%s", away)
    return events


def moved(seen: dict[str, str] | None, now: dict[str, str]) -> list[Push]:
    """The pushes between two looks; a branch that is new was pushed from nothing.

    None for `seen` is the first look, which starts nothing. Branches that are gone start nothing.
    """
    if seen is None:
        return []
    return [
        Push(ref, seen.get(ref, "0" * 40), commit)
        for ref, commit in sorted(now.items())
        if seen.get(ref) != commit
    ]


def tips(git: Git, rules: Rules) -> dict[str, str]:
    """The branches that count and their commits."""
    lines = git.text("for-each-ref", "--format=%(objectname) %(refname)", HEADS).splitlines()
    pairs = [line.partition(" ") for line in lines]
    return {ref: commit for commit, _, ref in pairs if rules.wants_branch(ref)}


def _look(repository: Repository, rules: Rules) -> int:
    name = f"axr_seen_{hashlib.sha256(repository.name.lower().encode()).hexdigest()[:24]}"
    noted: Any = Variable.get(name, default=None)
    seen = dict(noted["branches"]) if isinstance(noted, dict) and "branches" in noted else None
    now = tips(repository.fetch(), rules)
    pushes = moved(seen, now)
    for push in pushes:
        event = push_event(repository.name, push, None)
        log().info("%s: %s is at %s", repository.name, push.ref, push.after)
        write(partial(send_event, event))
    if seen != now:
        # What is gone is remembered: a branch that comes back where it was is no push.
        value: Any = {"repository": repository.name, "branches": {**(seen or {}), **now}}
        Variable.set(name, value, overwrite=True)
    return len(pushes)


def send_event(event: dict[str, Any]) -> None:
    """Give an event to the server, and know that it has it."""
    api().request("POST", "/events", json=[event])
