"""The run that a parent works for: its id, its task file, its lock, and when it must be over."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from uuid import UUID

from blocks.clouds import cloud as cloud_named
from runner.callbacks_found import Read, callback_findings, reading
from runner.home import REPOSITORY, Home, home
from runner.renting import renting_findings
from runner.secrets import learn
from runner.settings import RunnerSettings
from runner.sources import COPIES, pushed_content, pushed_text
from runner.task_secrets import secret_findings, secrets_of
from runner.taskfile import Finding, TaskFile, TaskFileError, parse_task_file, read_task_file
from tasks.api import api
from tasks.standing import recall, remember


@dataclass(frozen=True)
class Run:
    """One task file being trained; `id` is the id of its `finetune` flow run. `repository` and
    `commit` say where it was pushed.

    `generation` counts how often somebody asked for it: 1, and one more for each `axolotl-runner
    resume`, the last of which came after attempt `asked_after`.
    """

    id: str
    task_file: str
    commit: str | None
    began: datetime
    generation: int = 1
    asked_after: int = 0
    repository: str | None = None

    @property
    def folder(self) -> Path:
        return home().run(self.id)


@dataclass(frozen=True)
class Order:
    """A checked task file and the clouds to ask, in order."""

    task: TaskFile
    clouds: tuple[str, ...]
    warnings: tuple[Finding, ...] = ()

    @property
    def settings(self) -> RunnerSettings:
        return self.task.settings

    @property
    def hub_repository(self) -> str | None:
        name = self.task.axolotl.get("hub_model_id")
        return str(name) if name else None

    def deadline(self, run: Run) -> datetime:
        """When the run must be over, whatever happens: `max_hours` after it began."""
        return run.began + timedelta(hours=self.settings.max_hours)


def parent_lock(run_id: str, where: Home | None = None) -> Path:
    """The file that the parent of this run holds as long as it lives."""
    return (where or home()).locks / f"{run_id}.lock"


def open_run(run_id: str) -> Run:
    """The run of this id, from Prefect; the moment it began is written down once and survives its
    parents.
    """
    prefect = api()
    parameters = prefect.read_flow_run(UUID(run_id)).parameters
    facts = recall(run_id)
    began = facts.get("began")
    if began is None:
        began = datetime.now(UTC).isoformat()
        remember(run_id, {"began": began})
    return Run(
        id=run_id,
        task_file=str(parameters["task_file"]),
        commit=parameters.get("commit"),
        began=datetime.fromisoformat(began),
        generation=int(facts.get("generation", "1")),
        asked_after=int(facts.get("asked_after", "0")),
        repository=parameters.get("repository"),
    )


def open_order(run_id: str) -> Order:
    """The order that the run was started with; raises ConfigError with one clear message."""
    prefect = api()
    asked = prefect.read_flow_run(UUID(run_id)).parameters
    task_file, content = str(asked["task_file"]), asked.get("content")
    repository, commit = asked.get("repository"), asked.get("commit")
    if not (repository and commit):
        return make_order(task_file, content, asked.get("cloud"), reading(REPOSITORY))
    copies = home().path / COPIES
    if content is None:
        content = pushed_text(copies, repository, commit, task_file)
    read = partial(pushed_content, copies, repository, commit)
    return make_order(task_file, content, asked.get("cloud"), read)


def asked_clouds(settings: RunnerSettings) -> tuple[str, ...]:
    """The task file's clouds in the order in which they are asked: as listed, but with `spot: true`
    Vast before RunPod, which has no interruptible machines any more.
    """
    listed = list(settings.cloud)
    if settings.spot and {"runpod", "vast"} <= set(listed):
        listed.remove("runpod")
        listed.insert(listed.index("vast") + 1, "runpod")
    return tuple(listed)


def make_order(
    task_file: str,
    content: str | None = None,
    cloud: str | None = None,
    read: Read | None = None,
) -> Order:
    """Read a task file (its content when the caller sent it) and name every cloud it asks for;
    `read` reads the files beside it, which are not looked into otherwise.

    ConfigError.
    """
    if content is not None:
        task = parse_task_file(content, task_file)
    else:
        task = read_task_file(REPOSITORY / task_file, root=REPOSITORY)
    learn(secrets_of(task.settings))
    clouds = (cloud,) if cloud else asked_clouds(task.settings)
    for name in clouds:
        cloud_named(name)
    findings = [*secret_findings(task), *renting_findings(task, clouds)]
    if read is not None:
        findings += callback_findings(task, read)
    stops = [finding for finding in findings if finding.level == "stop"]
    if stops:
        raise TaskFileError(task.name, stops)
    return Order(task, clouds, tuple(findings))
