"""Secrets in a task file, which is committed and shown in the UI: found to be warned about, and to
be kept out of what the run says.

A run gets a secret by its name alone: `NAME:` without a value in `runner.env` is filled in on the
control side (blocks/grants.py) and never stands in a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from runner.block import NAMES
from runner.finding import Finding, stop, warn
from runner.secret_shapes import has_shape, is_secret_value
from runner.settings import RunnerSettings
from runner.taskfile import TaskFile

MOST_FINDINGS = 20
# Of the whole installation: with one of them a pod could rent others, or run commands here.
NEVER_ON_A_POD = frozenset(
    {
        "RUNPOD_API_KEY",
        "VAST_API_KEY",
        "CONTAINER_API_KEY",
        "PREFECT_API_KEY",
        "PREFECT_API_AUTH_STRING",
        "PREFECT_SERVER_API_AUTH_STRING",
    }
)
_LOGIN = re.compile(r"-p\s+(?P<password>\S+)")
_NAMED = re.compile(r"\$\{?(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}?")

Path = tuple[str | int, ...]


def secret_findings(task: TaskFile) -> list[Finding]:
    """Warnings about literals that look like secrets, wherever they stand in the file; a stop for
    keys that no pod may have. No finding holds a value.
    """
    found = [
        *_forbidden(task),
        *_in_env(task),
        *_in_registry(task),
        *_elsewhere(task, task.axolotl, ()),
    ]
    return found[:MOST_FINDINGS]


def secrets_of(settings: RunnerSettings) -> dict[str, str]:
    """The secrets that stand in our block, by name, for `runner.secrets.learn`."""
    found = {name: value for name, value in settings.env.items() if value and _looks(name, value)}
    login = _LOGIN.search(settings.registry or "")
    if login and not _NAMED.fullmatch(login["password"]):
        found["registry"] = login["password"]
    return found


def named_secrets(settings: RunnerSettings) -> tuple[str, ...]:
    """The variables that the task file asks for by name alone, `$NAME` of a login among them."""
    names = [name for name, value in settings.env.items() if value is None]
    login = _LOGIN.search(settings.registry or "")
    named = _NAMED.fullmatch(login["password"]) if login else None
    return tuple(dict.fromkeys([*names, *([named["name"]] if named else [])]))


def registry_login(settings: RunnerSettings, given: Mapping[str, str]) -> str | None:
    """`registry` with the password that it names filled in."""
    login = _LOGIN.search(settings.registry or "")
    named = _NAMED.fullmatch(login["password"]) if login else None
    if settings.registry is None or login is None or named is None:
        return settings.registry
    start, end = login.span("password")
    filled = given.get(named["name"], login["password"])
    return settings.registry[:start] + filled + settings.registry[end:]


def _forbidden(task: TaskFile) -> Iterator[Finding]:
    for name in sorted(NEVER_ON_A_POD & set(task.settings.env)):
        yield stop(
            "account-key",
            f"env.{name}: a key of the whole installation never goes to a pod",
            "leave it out: each pod gets a key for itself",
            key=f"env.{name}",
            at=_place(task, "env", name),
        )


def _in_env(task: TaskFile) -> Iterator[Finding]:
    for name, value in task.settings.env.items():
        if value and _looks(name, value):
            yield _warning(
                f"env.{name}",
                f"write `{name}:` without a value, and set AXR_SECRET_{name} on the control side "
                f"or make a Prefect Secret block named {block_name(name)}",
                _place(task, "env", name),
            )


def _in_registry(task: TaskFile) -> Iterator[Finding]:
    if "registry" in secrets_of(task.settings):
        yield _warning(
            "registry",
            "write -p $REGISTRY_TOKEN, and set AXR_SECRET_REGISTRY_TOKEN on the control side or "
            f"make a Prefect Secret block named {block_name('REGISTRY_TOKEN')}",
            task.setting_place("registry"),
        )


def _elsewhere(task: TaskFile, value: object, path: Path) -> Iterator[Finding]:
    """In axolotl's own part, which is published with the model."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _elsewhere(task, each, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            yield from _elsewhere(task, each, (*path, number))
    elif isinstance(value, str) and path:
        name = next((step for step in reversed(path) if isinstance(step, str)), "")
        if _looks(name, value):
            yield _warning(
                ".".join(map(str, path)),
                "axolotl publishes its file with the model: take it out, and set HF_TOKEN or "
                "WANDB_API_KEY on the control side, or name it in runner.env",
                task.place(*path),
            )


def block_name(name: str) -> str:
    """The Prefect Secret block that holds a run's secret of this name."""
    return "axr-" + name.lower().replace("_", "-")


def _warning(key: str, hint: str, at: tuple[int, int]) -> Finding:
    message = f"{key} looks like a secret, and this file is committed and shown in the UI"
    return warn("secret-in-file", message, hint, key=key, at=at)


def _looks(name: str, value: str) -> bool:
    return is_secret_value(name, value) or has_shape(value)


def _place(task: TaskFile, *path: str) -> tuple[int, int]:
    places = (task.place(name, *path) for name in NAMES)
    return next((place for place in places if place != (1, 1)), task.setting_place(path[0]))
