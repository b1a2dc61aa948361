"""What one push event comes to: which runs it starts, and what is said of the rest.

The event is a hint. It says that a branch of a connected repository moved; what changed, whether
the branch counts, and what the files hold is read from the repository itself, at the pushed commit.
So a forged event can start nothing that was not pushed, and one that comes twice, late or by
another way finds the runs that the first one started: their keys follow from the commit that asks
for the training, the path and the content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterIdempotencyKey
from prefect.client.schemas.objects import State
from prefect.states import Scheduled

from blocks.logs import log
from blocks.repository import Repository, is_on_branch
from runner.axolotl_keys import places, template_places
from runner.errors import ConfigError, RunnerError, TryAgain
from runner.push.beside import Listed, listing, missing, pointers
from runner.push.changes import PassedOver, Push, is_none
from runner.push.event import resource
from runner.push.git import COMMIT, Git, GitError
from runner.push.pushed import Pushed, TaskFiles, read, task_files
from runner.push.rules import Rules
from runner.taskfile import decoded
from runner.tokens import is_repository
from tasks.api import api, write
from tasks.run import make_order

FINETUNE = "finetune/finetune"
MANY = 10
LONGEST = 200  # of what an event says, in a message


class Refused(RunnerError):
    """This event starts nothing, ever; the message says why."""


@dataclass(frozen=True)
class Told:
    """What an event says, in the right form; `blobs` of the files, None if it says nothing."""

    repository: str
    push: Push
    blobs: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Wanted:
    """A run to start."""

    path: str
    content: str
    key: str


@dataclass(frozen=True)
class Bad:
    """A task file that can't be used; `reason` has a line for each fault."""

    path: str
    reason: str


@dataclass(frozen=True)
class Started:
    """A run of this push; `new` is False when an earlier event had started it."""

    path: str
    run: str
    new: bool


@dataclass(frozen=True)
class Plan:
    """All of a push, file by file."""

    wanted: tuple[Wanted, ...] = ()
    bad: tuple[Bad, ...] = ()
    passed_over: tuple[PassedOver, ...] = ()


def read_event(
    repository: object,
    ref: object,
    before: object,
    after: object,
    files: object,
    event_resource: object,
) -> Told:
    """The parts of an event, checked; Refused when one has not its form."""
    name = _text("repository", repository, is_repository)
    if event_resource is not None and event_resource != resource(name):
        raise Refused(f"the event is about {_shown(event_resource)}, its payload about {name}")
    push = Push(
        _text("ref", ref, lambda text: text.startswith("refs/") and text.isprintable()),
        _text("before", before, COMMIT.fullmatch),
        _text("after", after, COMMIT.fullmatch),
    )
    return Told(name, push, _blobs(files))


def plan(repository: Repository, told: Told, rules: Rules) -> Plan:
    """What the push comes to; Refused, or TryAgain when the repository can't be read now."""
    push = told.push
    if is_none(push.after):
        return Plan()
    if not rules.wants_branch(push.ref):
        log().info("%s is no branch that starts runs (%s)", push.ref, " ".join(rules.branches))
        return Plan()
    repository.fetch()
    try:
        return _plan(repository, told, rules)
    except GitError as error:
        raise TryAgain(f"{repository.name} can't be read: {error}") from None


def _plan(repository: Repository, told: Told, rules: Rules) -> Plan:
    push = told.push
    try:
        git = repository.with_commit(push.after)
    except ConfigError as error:
        raise Refused(str(error)) from None
    if not is_on_branch(git, push):
        raise Refused(
            f"{push.after} is not part of {push.ref} (any more): a force push has taken it away, "
            "or the event is forged"
        )
    found = task_files(git, push, rules, default=repository.default_branch())
    _compare(told, found)
    there = listing(git, push.after) if found.files else {}
    wanted, bad = [], []
    for file in found.files:
        try:
            wanted.append(_wanted(repository.name, git, there, file))
        except ConfigError as error:
            bad.append(Bad(file.path, str(error)))
    return Plan(tuple(wanted), tuple(bad), found.passed_over)


def start(repository: str, commit: str, wanted: Sequence[Wanted]) -> list[Started]:
    """Start what was not started before; the runs of all, in the same order."""
    known = _known([each.key for each in wanted])
    prefect = api()
    deployment = prefect.read_deployment_by_name(FINETUNE)
    state: State[None] = Scheduled(scheduled_time=_begin(len(wanted)))
    started = []
    for each in wanted:
        parameters = {
            "task_file": each.path,
            "repository": repository,
            "commit": commit,
            "content": each.content,
        }
        create = partial(
            prefect.create_flow_run_from_deployment,
            deployment.id,
            parameters=parameters,
            state=state,
            idempotency_key=each.key,
            tags=[*deployment.tags, f"repository:{repository}", f"commit:{commit[:12]}"],
        )
        run = known.get(each.key) or str(write(create).id)
        started.append(Started(each.path, run, each.key not in known))
    return started


def run_key(repository: str, file: Pushed) -> str:
    """The name of the run that this file at this commit gets, once and for all."""
    parts = (repository.lower(), file.origin, file.path, file.blob)
    return f"push-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:40]}"


def _wanted(repository: str, git: Git, there: Mapping[str, Listed | None], file: Pushed) -> Wanted:
    content = decoded(read(git, file.blob), file.path)
    task = make_order(file.path, content).task
    names = [value for _, value in (*places(task.axolotl), *template_places(task.axolotl))]
    if found := list(pointers(git, there, file.path, names)):
        raise ConfigError(
            f"{file.path}: of {', '.join(found)} the commit holds only a Git LFS pointer: commit "
            "the file itself, or put it on the hub"
        )
    for name in missing(there, file.path, names):
        log().warning("%s names %s, which is not in the commit", file.path, name)
    return Wanted(file.path, content, run_key(repository, file))


def _begin(runs: int) -> datetime:
    """When the runs of a push begin: at once, or many of them when all are there.

    Workers fetch runs 10 s ahead, and the processes of the first ones slow the making of the rest
    down: on two busy cores 50 took over half a minute.
    """
    wait = 0.0 if runs <= MANY else 10.0 + 0.5 * runs
    return datetime.now(UTC) + timedelta(seconds=wait)


def _known(keys: list[str]) -> dict[str, str]:
    """The runs that there are already, by key."""
    if not keys:
        return {}
    prefect, found = api(), {}
    for first in range(0, len(keys), 100):
        some = FlowRunFilterIdempotencyKey(any_=keys[first : first + 100])
        runs = prefect.read_flow_runs(flow_run_filter=FlowRunFilter(idempotency_key=some))
        found.update({str(run.idempotency_key): str(run.id) for run in runs})
    return found


def _compare(told: Told, found: TaskFiles) -> None:
    """Say where an event and the repository differ; the repository holds."""
    if told.blobs is None:
        return
    there = {file.path: file.blob for file in found.files}
    for path in sorted(set(told.blobs) - set(there)):
        log().warning("%s was told of, but this push does not start it", path)
    for path in sorted(set(there) - set(told.blobs)):
        log().warning("%s was not told of, but this push changed it", path)
    for path in sorted(set(there) & set(told.blobs)):
        if there[path] != told.blobs[path]:
            log().warning("%s has other content at the commit than was told", path)


def _blobs(files: object) -> dict[str, str] | None:
    if files is None:
        return None
    if not isinstance(files, list):
        raise Refused("`files` is a list of {path, blob}")
    found = {}
    for file in files:
        match file:
            case {"path": str(path), "blob": str(blob)} if COMMIT.fullmatch(blob):
                found[path] = blob
            case _:
                raise Refused(f"a file of an event is {{path, blob}}, not {_shown(file)}")
    return found


def _text(name: str, value: object, fits: Any) -> str:
    if not isinstance(value, str) or not fits(value):
        raise Refused(f"`{name}` can't be {_shown(value)}")
    return value


def _shown(value: object) -> str:
    return ascii(value)[:LONGEST]
