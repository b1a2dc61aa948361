"""The ground of a task file: a file on this machine, a run, a commit."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from runner.callbacks_found import Read, reading
from runner.checks.ground import CommitFiles, Files, FolderFiles, Ground
from runner.gateway import RENTED
from runner.home import REPOSITORY
from runner.push.git import Git, GitError
from runner.secrets import GRANT
from runner.settings import RunnerSettings
from runner.taskfile import TaskFile

# The variables of a control side that a run gets (tasks/ordering.py) and that the checks ask for.
PASSED_ON = ("HF_TOKEN", "HF_ENDPOINT", "WANDB_API_KEY")


def ground_of_file(
    file: Path, task: TaskFile, environment: Mapping[str, str] = os.environ
) -> Ground:
    """Of a file on this machine that would be trained from the repository that it lies in."""
    full = file.resolve()
    return ground_in(
        repository_of(full), full.parent, tuple(task.settings.cloud), task.settings, environment
    )


def ground_in(
    root: Path,
    folder: Path,
    clouds: Sequence[str],
    settings: RunnerSettings,
    environment: Mapping[str, str] = os.environ,
) -> Ground:
    """Of a task file in `folder` of the repository `root`; pods of other people's machines get the
    files that git knows or would take.
    """
    carried = any(cloud in RENTED for cloud in clouds)
    return Ground(
        clouds=tuple(clouds),
        files=_files(root, carried=carried),
        folder=os.path.relpath(folder, root),
        carried=carried,
        environment=run_environment(settings, environment),
        read=reading(root),
    )


def ground_of_commit(
    paths: Sequence[str],
    path: str,
    clouds: Sequence[str],
    environment: Mapping[str, str] | None,
    read: Read | None = None,
) -> Ground:
    """Of a task file at a commit that has these files."""
    folder = str(PurePosixPath(path).parent)
    return Ground(tuple(clouds), CommitFiles(paths), folder, environment=environment, read=read)


def run_environment(
    settings: RunnerSettings, environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The variables that a pod will have, as far as the checks look at them."""
    own = {name: value for name, value in settings.env.items() if value is not None}
    named = {name: environment.get(GRANT + name) or "" for name in settings.env}
    passed = {name: environment.get(name) or "" for name in PASSED_ON}
    return {name: value for name, value in {**passed, **own, **_set(named)}.items() if value}


def repository_of(file: Path) -> Path:
    """The root of the repository that a file lies in; its folder where there is none."""
    if file.is_relative_to(REPOSITORY):
        return REPOSITORY
    return next((each for each in file.parents if (each / ".git").exists()), file.parent)


def _files(root: Path, *, carried: bool) -> Files:
    if carried and (root / ".git").exists():
        try:
            listed = Git(root).run("ls-files", "-z", "-c", "-o", "--exclude-standard")
        except GitError:
            return FolderFiles(root)
        return CommitFiles((os.fsdecode(path) for path in listed.split(b"\0") if path), root)
    return FolderFiles(root)


def _set(values: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in values.items() if value}
