"""The run directory on the pod's volume: every path of a run in one place.

    task.yml        the committed text
    axolotl.yml     what axolotl is given
    attempt.json    {attempt, from_checkpoint, rung, spike, log_eval, …}, before each start
    events.jsonl    one fact a line, appended (pod.events)
    control.json    {seq, cmd, attempt}, answered by an event with that seq
    fetched.json    {cache, offline, prepared, repos} from the hub (tasks.fetching)
    trainer.json    {pid, start, attempt} of the living or last trainer (pod.trainer)
    trainer.log     what the trainer printed, all attempts
    pulse.json      {t, step, phase}, the living trainer's last sign of life (pod.pulse)
    evals/          the worst samples of each evaluation (pod.eval_rows)
    out/            checkpoint-N/ and the final model
    kept/           hard-linked checkpoints that rotation must not take (pod.ledger)
    quarantine/     checkpoint-N.attempt-K, moved aside, never deleted
    wandb.json      {id, url} of the W&B run that the trainer has joined (pod.wandb_join)
    wandb/          what W&B keeps here, all of it where it is offline
    finished        the model is published: this pod has nothing left to do

JSON files are replaced by rename, so a reader sees the old text or the new one, never half.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class RunDir:
    """The folder of one run; `path` is absolute on the machine that uses it."""

    path: Path

    @property
    def task_file(self) -> Path:
        return self.path / "task.yml"

    @property
    def axolotl_file(self) -> Path:
        return self.path / "axolotl.yml"

    @property
    def attempt_file(self) -> Path:
        return self.path / "attempt.json"

    @property
    def fetched(self) -> Path:
        return self.path / "fetched.json"

    @property
    def events(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def control(self) -> Path:
        return self.path / "control.json"

    @property
    def trainer_pid(self) -> Path:
        return self.path / "trainer.json"

    @property
    def trainer_lock(self) -> Path:
        return self.path / "trainer.lock"

    @property
    def trainer_log(self) -> Path:
        return self.path / "trainer.log"

    @property
    def pulse(self) -> Path:
        return self.path / "pulse.json"

    @property
    def evals(self) -> Path:
        return self.path / "evals"

    @property
    def out(self) -> Path:
        return self.path / "out"

    @property
    def kept(self) -> Path:
        return self.path / "kept"

    @property
    def quarantine(self) -> Path:
        return self.path / "quarantine"

    @property
    def wandb(self) -> Path:
        return self.path / "wandb.json"

    @property
    def finished(self) -> Path:
        return self.path / "finished"


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Replace `path` by the JSON of `value` in one step; makes the folder if need be."""
    replace_text(path, json.dumps(value, allow_nan=False) + "\n")


def replace_text(path: Path, text: str) -> None:
    """Replace `path` by `text` in one step; makes the folder if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # The pid keeps two writers from sharing one unfinished file.
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in `path`, None if there is no such file.

    Raises ValueError when the file holds something else than a JSON object.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds no JSON object")
    return value


def sha256_of(path: Path) -> str:
    """The hash of a file's content, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
