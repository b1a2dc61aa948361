"""The trainer's part of the run in W&B: it joins the run that the control side has opened.

It is opened by the plugin when the configuration was read, so that loading is in it, and before
transformers' callback would open one of its own, which would take the task file's id, ask for a
key, and end the run. As a secondary writer it never says how the run ended; only its own label
stands at its lines.

What it sends beside the callbacks' metrics (pod/wandb_attempts.py): the trainer's log of this
attempt, scrubbed, each line once it is whole, of a progress bar its last state. W&B's own capture
of the output is off: that would not be scrubbed, and misses what the process says before.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from typing import Any

from pod.rundir import RunDir, write_json
from runner.secrets import scrub
from runner.wandb_open import LEAVES_WITHIN, Opened, bounded, open_wandb

LOG = logging.getLogger(__name__)

LOOK_EVERY = 2.0  # seconds
LINE_LENGTH = 2000
MOST_AT_ONCE = 1_000_000  # bytes of the log; of more than that in one look the middle is left out


class Joined:
    """The W&B run of this process, while it trains; `leave` once, at the end."""

    def __init__(self, opened: Opened, console: Console) -> None:
        self.opened = opened
        self.console = console

    def leave(self, exit_code: int) -> None:
        """Send the rest within LEAVES_WITHIN seconds; safe to repeat."""
        self.console.stop()
        if not self.opened.leave(exit_code, LEAVES_WITHIN):
            LOG.warning("W&B has not got everything: it was given up")


def join(
    run_dir: RunDir, attempt: int, environment: Mapping[str, str] = os.environ
) -> Joined | None:
    """Open the run that the environment names; None where it names none.

    Takes a minute or two at most; what W&B refuses is written offline, and training goes on.
    """
    if not environment.get("WANDB_RUN_ID") or environment.get("WANDB_MODE") == "disabled":
        return None
    # Files that wait for their upload; by default in the home, which ends with a local pod.
    os.environ.setdefault("WANDB_DATA_DIR", str(run_dir.path / "wandb"))
    try:
        opened = open_wandb(_settings(run_dir, attempt, environment))
    except ImportError as missing:
        LOG.warning("W&B is not installed: %s", missing)
        return None
    if opened.trouble:
        LOG.warning("W&B is %s, and the training goes on: %s", opened.mode, scrub(opened.trouble))
    write_json(run_dir.wandb, {"id": environment["WANDB_RUN_ID"], "url": opened.url})
    console = Console(run_dir, opened.run)
    console.start()
    return Joined(opened, console)


def _settings(run_dir: RunDir, attempt: int, environment: Mapping[str, str]) -> dict[str, Any]:
    """What is not here comes from the WANDB_* variables: project, entity, name, tags, id."""
    return {
        "mode": environment.get("WANDB_MODE") or "shared",
        "run_id": environment["WANDB_RUN_ID"],
        "resume": "allow",
        "root_dir": str(run_dir.path),
        "x_label": f"attempt-{attempt}",
        "x_primary": False,
        "x_update_finish_state": False,
        "console": "off",
        "disable_git": True,
        "disable_code": True,
    }


class Console:
    """Sends what this attempt's processes print, from the line on with which it begins."""

    def __init__(self, run_dir: RunDir, run: Any) -> None:
        self._log = run_dir.trainer_log
        self._run = run
        self._at = self._begin()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True, name="wandb-console")

    def start(self) -> None:
        """Follow the log from a thread."""
        self._thread.start()

    def stop(self) -> None:
        """Send the rest, an unfinished last line too; safe to repeat."""
        if self._ended.is_set():
            return
        self._ended.set()
        self._thread.join(LOOK_EVERY)
        try:
            bounded(lambda: self.look(all_of_it=True), LOOK_EVERY)
        except Exception as error:
            LOG.warning("W&B has not got the last lines: %s", error)

    def look(self, *, all_of_it: bool = False) -> None:
        """Send the whole lines since the last look."""
        try:
            with self._log.open("rb") as file:
                file.seek(self._at)
                data = file.read()
        except FileNotFoundError:
            return
        whole = data if all_of_it else data[: data.rfind(b"\n") + 1]
        self._at += len(whole)
        if lines := shown_lines(_without_middle(whole)):
            self._run.write_logs("\n".join(lines))

    def _work(self) -> None:
        while not self._ended.wait(LOOK_EVERY):
            try:
                self.look()
            except Exception as error:  # no training ends because its lines can't be shown
                LOG.warning("W&B gets no more lines: %s", error)
                return

    def _begin(self) -> int:
        try:
            return max(0, self._log.read_bytes().rfind(b"=== attempt "))
        except FileNotFoundError:
            return 0


def shown_lines(data: bytes) -> list[str]:
    """Lines as a terminal would show them, without secrets, none of them too long."""
    text = scrub(data.decode("utf-8", errors="replace"))
    shown = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return [line[:LINE_LENGTH] for line in shown if line.strip()]


def _without_middle(data: bytes) -> bytes:
    if len(data) <= MOST_AT_ONCE:
        return data
    half = MOST_AT_ONCE // 2
    return data[:half] + b"\n[...]\n" + data[-half:]
