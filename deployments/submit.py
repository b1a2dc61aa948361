"""Starting, cancelling and resuming runs from the command line, through the same deployments as the
UI.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from deployments import control
from runner.errors import ConfigError
from runner.home import REPOSITORY, home
from runner.taskfile import MAX_BYTES, read_task_file

FINETUNE = "finetune/finetune"


def run_file(file: Path, *, cloud: str | None, watch: bool, cancel_on_interrupt: bool) -> int:
    """Start a run of `file`; with `watch`, follow it to its end.

    A file that can't be a task file is refused at once with one message. When the control side is
    up, the run is created nevertheless, so that the refusal stands in the UI too, as ConfigError.
    """
    was_up = control.running(home()) is not None
    try:
        read_task_file(file)
    except ConfigError as error:
        print(error, file=sys.stderr)
        if was_up:
            print(f"recorded as run {_create(file, cloud)}", file=sys.stderr)
        return 2
    run_id = _create(file, cloud)
    print(f"run {run_id} · {_ui()}/runs/flow-run/{run_id}")
    if not watch:
        print(f"follow it: axolotl-runner logs {run_id} · stop it: axolotl-runner cancel {run_id}")
        return 0
    from deployments.watching import watch_run

    code = watch_run(run_id, cancel_on_interrupt=cancel_on_interrupt)
    if not was_up and (code != 130 or cancel_on_interrupt):
        _stop_unless_needed()
    print(home().shown(home().run(run_id) / "report.json"))
    return code


def _stop_unless_needed() -> None:
    """This command started the control side, so it leaves it up only for the runs of others."""
    from deployments.revive import unfinished_parents

    if others := unfinished_parents():
        print(f"Prefect stays up for {len(others)} more run(s); stop it with: axolotl-runner down")
        return
    control.down(home())
    print("Prefect was stopped again; open its UI on this data with: axolotl-runner up")


def _create(file: Path, cloud: str | None) -> str:
    side = control.up(home())
    os.environ.update(control.environment(home()), PREFECT_API_URL=side.api)
    from tasks.api import api

    parameters = {"task_file": _name(file), "content": _content(file), "cloud": cloud}
    prefect = api()
    deployment = prefect.read_deployment_by_name(FINETUNE)
    created = prefect.create_flow_run_from_deployment(
        deployment.id,
        parameters={key: value for key, value in parameters.items() if value is not None},
    )
    return str(created.id)


def _name(file: Path) -> str:
    """The file as the run knows it: relative to the repository when it lies inside."""
    full = file.resolve()
    return full.relative_to(REPOSITORY).as_posix() if full.is_relative_to(REPOSITORY) else str(full)


def _content(file: Path) -> str | None:
    """The file's text; None when none could be sent: then the flow says what is wrong."""
    try:
        return file.read_text(encoding="utf-8") if file.stat().st_size <= MAX_BYTES else None
    except (OSError, UnicodeDecodeError):
        return None


def _ui() -> str:
    side = control.running(home())
    return side.ui if side else os.environ["PREFECT_API_URL"].removesuffix("/api")
