"""Publish the model of a run from its pod.

    python -m pod.publish --run-dir DIR --repository NAME

takes `model/` as it was gathered and `told.json` (runner.provenance); prints {"published": {…}} or
{"error": text} as its last line. It runs in the worker's Python, as a process of its own that may
be ended when it takes too long. A second one waits for the first and then has nothing to send.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from pod.publish.card import CARD, write_card
from pod.publish.clean import clean
from pod.publish.repository import ModelRepository
from pod.publish.upload import NotPublished, Published, publish
from pod.rundir import RunDir, read_json
from runner.provenance import from_plain
from runner.secrets import learn
from runner.task_secrets import secrets_of
from runner.taskfile import TaskFile, parse_task_file


def publish_run(
    run_dir: RunDir, repository: str, environment: Mapping[str, str] = os.environ
) -> Published:
    """Describe, clean and upload `model/`; NotPublished with the one reason."""
    task = parse_task_file(run_dir.task_file.read_text(encoding="utf-8"), run_dir.task_file.name)
    learn(secrets_of(task.settings))
    model = run_dir.path / "model"
    with (run_dir.path / "publish.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _describe(run_dir, task, repository, environment)
        if held := clean(model, environment):
            print(f"axolotl-runner: secrets were taken out of {', '.join(held)}", file=sys.stderr)
        return publish(
            ModelRepository(repository, environment),
            model,
            private=task.settings.hub_private_repo,
        )


def _describe(
    run_dir: RunDir, task: TaskFile, repository: str, environment: Mapping[str, str]
) -> None:
    """Write the card. A fault of ours in it costs the card, never the model."""
    model = run_dir.path / "model"
    try:
        told = from_plain(read_json(run_dir.path / "told.json"))
        write_card(run_dir, model, task, told, repository=repository, environment=environment)
    except Exception as bug:
        (model / CARD).unlink(missing_ok=True)  # axolotl's holds the raw file that it was given
        print(f"axolotl-runner: no card: {type(bug).__name__}: {bug}", file=sys.stderr)


def main() -> None:
    """Publish, and print the outcome for the process that waits for it."""
    parser = argparse.ArgumentParser(description="publish the model of a run")
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--repository", required=True)
    given = parser.parse_args()
    try:
        outcome = {"published": asdict(publish_run(RunDir(given.run_dir), given.repository))}
    except Exception as error:  # whatever it is: who waits must learn that nothing was published
        text = str(error) if isinstance(error, NotPublished) else f"{type(error).__name__}: {error}"
        print(f"axolotl-runner: publish: {text}", file=sys.stderr, flush=True)
        outcome = {"error": text}  # type: ignore[dict-item]
    print(json.dumps(outcome), flush=True)


if __name__ == "__main__":
    main()
