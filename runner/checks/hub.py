"""What the hub says before a run: do its models and data sets exist for this token, may it write?

A hub that can't be asked is a note, never a stop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Literal, Protocol

from runner.axolotl_keys import DATASET_KEYS, places
from runner.block import dotted
from runner.checks.ground import Ground
from runner.checks.local_files import HUB_NAME, LOADERS, is_local
from runner.finding import Finding, stop, warn
from runner.gateway import RENTED
from runner.taskfile import TaskFile

Kind = Literal["model", "dataset"]
Sight = Literal["there", "absent", "gated"]
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
STORE = "hf://"


class Away(Exception):
    """The hub gave no answer; the text says why."""


class TokenRefused(Exception):
    """The hub does not know this token."""


@dataclass(frozen=True)
class Account:
    """Whose token it is and what it may do. `writes` are names of users, organizations and
    repositories that a fine-grained one may write to.
    """

    user: str
    role: str
    orgs: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()

    def why_not(self, repository: str) -> str:
        """Why this token can't write to a repository; empty where it can."""
        owner = repository.partition("/")[0] if "/" in repository else self.user
        if self.role == "read":
            return "the token in HF_TOKEN may only read"
        if self.role == "fineGrained":
            if owner in self.writes or repository in self.writes:
                return ""
            return f"the fine-grained token in HF_TOKEN may not write to {owner}"
        if owner in (self.user, *self.orgs):
            return ""
        return f"HF_TOKEN is one of {self.user}, who can't write to {owner}"


class HubSight(Protocol):
    """What is asked of the hub; each raises Away, and TokenRefused."""

    def look(self, kind: Kind, name: str) -> Sight:
        """Whether the token may read it."""

    def account(self) -> Account:
        """Whose token it is."""

    def make(self, repository: str) -> str:
        """Make the private repository if it is missing; why it can't be, empty where it could."""


def hub_findings(
    task: TaskFile, ground: Ground, hub: HubSight, *, prove: bool
) -> tuple[list[Finding], list[str]]:
    """Findings and notes; with `prove`, a rented run's repository is made."""
    findings: list[Finding] = []
    try:
        for found in chain(_read(task, ground, hub), _written(task, ground, hub, prove=prove)):
            findings.append(found)  # one by one: what is known stays when the hub goes away
    except Away as away:
        return findings, [f"the hub could not be asked: {away}"]
    except TokenRefused as refused:
        key, _, at = next(_targets(task), ("base_model", "", task.place("base_model")))
        message = f"{key}: the hub refuses the token in HF_TOKEN: {refused}"
        findings.append(stop("hf-token", message, "make a new one", key=key, at=at))
    return findings, []


def token_findings(task: TaskFile, ground: Ground) -> Iterator[Finding]:
    """What is known without asking: a place to upload to and no token for it."""
    if ground.environment is None or ground.environment.get("HF_TOKEN"):
        return
    rented = any(cloud in RENTED for cloud in ground.clouds)
    for key, repository, at in _targets(task):
        yield (stop if rented else warn)(
            "hf-token",
            f"{key}: HF_TOKEN is not set, so nothing can be uploaded to {repository}",
            "set it on the control side, with write access",
            key=key,
            at=at,
        )


def _read(task: TaskFile, ground: Ground, hub: HubSight) -> Iterator[Finding]:
    if any(task.settings.env.get(name) in ("1", "true") for name in OFFLINE):
        return
    token = bool((ground.environment or {}).get("HF_TOKEN"))
    seen: dict[tuple[Kind, str], Sight] = {}
    for key, kind, name, at in _names(task, ground):
        sight = seen.get((kind, name)) or hub.look(kind, name)
        seen[kind, name] = sight
        what = "model" if kind == "model" else "data set"
        if sight == "absent":
            public = "" if token else "public "
            hint = "check its name" if token else "check its name; for a private one set HF_TOKEN"
            message = f"{key}: the hub has no {public}{what} {name}"
            message += " that HF_TOKEN may read" if token else ""
            yield stop(f"no-{kind}", message, hint, key=key, at=at)
        elif sight == "gated":
            message = f"{key}: the {what} {name} is gated, and HF_TOKEN has no access to it"
            if not token:
                message = f"{key}: the {what} {name} is gated, and HF_TOKEN is not set"
            hint = "ask for access on its page, with the account of the token"
            yield stop(f"gated-{kind}", message, hint, key=key, at=at)


def _names(task: TaskFile, ground: Ground) -> Iterator[tuple[str, Kind, str, tuple[int, int]]]:
    for path, value in places(task.axolotl):
        if path[0] in ("hub_model_id", "output_dir", "dataset_prepared_path", "deepspeed"):
            continue
        data = path[0] in DATASET_KEYS
        if (data and (path[-1] != "path" and len(path) > 1)) or value in LOADERS:
            continue
        if not HUB_NAME.fullmatch(value) or is_local(value, ground) or _is_made(task, path):
            continue
        yield dotted(path), "dataset" if data else "model", value, task.place(*path)


def _is_made(task: TaskFile, path: tuple[str | int, ...]) -> bool:
    """Rows that axolotl makes itself: `type: _synthetic`."""
    value = task.axolotl.get(str(path[0]))
    dataset = value[path[1]] if isinstance(value, list) and isinstance(path[1], int) else None
    return isinstance(dataset, Mapping) and dataset.get("type") == "_synthetic"


def _targets(task: TaskFile) -> Iterator[tuple[str, str, tuple[int, int]]]:
    name = task.axolotl.get("hub_model_id")
    if isinstance(name, str) and name:
        yield "hub_model_id", name, task.place("hub_model_id")
    store = task.settings.checkpoint_store or ""
    if store.startswith(STORE):
        repository = "/".join(store.removeprefix(STORE).split("/")[:2])
        yield "checkpoint_store", repository, task.setting_place("checkpoint_store")


def _written(task: TaskFile, ground: Ground, hub: HubSight, *, prove: bool) -> Iterator[Finding]:
    targets = list(_targets(task))
    if not targets or not (ground.environment or {}).get("HF_TOKEN"):
        return
    account = hub.account()
    rented = any(cloud in RENTED for cloud in ground.clouds)
    for key, repository, at in targets:
        why = account.why_not(repository)
        if not why and prove and rented:
            why = hub.make(repository)
        if why:
            hint = f"use a token with write access to {repository}, or name another repository"
            yield stop("hub-write", f"{key}: {why}", hint, key=key, at=at)
