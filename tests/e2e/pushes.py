"""A repository of task files that is pushed to, and a control side that is told of it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.e2e.conftest import Side
from tests.histories import MAIN, History


@dataclass
class Pushes:
    """A working copy whose remote has our hook, and the control side that is told."""

    side: Side
    work: History
    bare: Path

    def push(self, message: str = "x") -> str:
        """Commit everything and push; the hook's words come with it."""
        self.work.commit(message)
        self.work.git("push", "-q", str(self.bare), "HEAD:refs/heads/main")
        return self.work.head

    def runs(self) -> dict[str, list[dict[str, Any]]]:
        """All runs of this control side, by task file."""
        found: dict[str, list[dict[str, Any]]] = {}
        for run in self._flow_runs("finetune", 200):
            found.setdefault(run["parameters"]["task_file"], []).append(run)
        return found

    def dispatches(self) -> list[dict[str, Any]]:
        """The dispatch runs that have ended, oldest first."""
        found = [run for run in self._flow_runs("dispatch", 50) if run["end_time"]]
        return sorted(found, key=lambda run: str(run["end_time"]))

    def dispatched(self, count: int) -> dict[str, Any]:
        """Wait until so many pushes were dispatched; the last one."""
        self.side.wait(f"dispatch {count}", lambda: len(self.dispatches()) >= count)
        return self.dispatches()[-1]

    def send(self, before: str, after: str, **payload: Any) -> None:
        """An event as anybody with the API could send it, with an id of its own."""
        event = {
            "id": str(uuid4()),
            "occurred": datetime.now().astimezone().isoformat(),
            "event": "axolotl.config.pushed",
            "resource": {"prefect.resource.id": "github.repository.demo/configs"},
            "payload": {
                "repository": "demo/configs",
                "ref": MAIN,
                "before": before,
                "after": after,
                "files": None,
                **payload,
            },
        }
        self.side.post("events", [event])

    def _flow_runs(self, flow: str, limit: int) -> list[dict[str, Any]]:
        question = {"flows": {"name": {"any_": [flow]}}, "limit": limit}
        found: list[dict[str, Any]] = self.side.post("flow_runs/filter", question)
        return found


def connected(side: Side, folder: Path) -> Pushes:
    """A new bare repository, connected, with the hook and nothing in it."""
    bare = folder / "configs.git"
    History.new(folder / "work")
    made = Pushes(side, History(folder / "work"), bare)
    made.work.git("init", "-q", "--bare", "-b", "main", str(bare))
    done = side.cli("connect", "demo/configs", "--url", str(bare), "--hook")
    assert done.returncode == 0, done.stderr
    return made


def stub_environment(folder: Path) -> Path:
    """An environment whose axolotl trains nothing (tests/emulators/axolotl.py)."""
    binary = folder / "bin" / "axolotl"
    binary.parent.mkdir(parents=True)
    binary.write_text(f'#!/bin/sh\nexec {sys.executable} -m tests.emulators.axolotl "$@"\n')
    binary.chmod(0o755)
    return folder
