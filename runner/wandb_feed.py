"""What the control side wants said in W&B: lines appended to a file, which a process of its own
sends (runner/wandb_writer.py). So W&B can neither delay nor fail a run, and a parent that is killed
loses nothing: the next one goes on in the same file.

<run>/story/order.json     how the W&B run is opened (runner.wandb_run, the config)
<run>/story/feed.jsonl     {kind, t, …}: one of
    line   {text}                                 of the run's log
    row    {values}                               numbers by name; `runner/hours` is their axis
    alert  {mark, title, text, level}             once for each mark
    child  {id}                                   the log of this step on the pod was said
    end    {exit_code, summary}                   the run has ended; more may follow a resume
<run>/story/state.json     {done, url, mode, trouble}: bytes of the feed that were sent, and where
<run>/story/writer.lock    held by the living writer

A run without W&B has no such folder. All text in the feed is scrubbed.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from runner.secrets import scrub_plain
from runner.wandb_run import WandbRun

AXIS = "runner/hours"


@dataclass(frozen=True)
class State:
    """How far the writer is, and where people find it; `trouble` is why it is not as wanted."""

    done: int = 0
    url: str = ""
    mode: str = ""
    trouble: str = ""


@dataclass(frozen=True)
class Feed:
    """The files of one run, whose folder is `run_folder`."""

    run_folder: Path

    @property
    def folder(self) -> Path:
        return self.run_folder / "story"

    @property
    def lines(self) -> Path:
        return self.folder / "feed.jsonl"

    @property
    def lock(self) -> Path:
        return self.folder / "writer.lock"

    @property
    def log(self) -> Path:
        return self.folder / "writer.log"

    @property
    def is_open(self) -> bool:
        """Whether this run has a W&B run at all."""
        return self._order.exists()

    def open(self, wandb_run: WandbRun, config: dict[str, Any]) -> bool:
        """Write down how the run is opened; False when that was done before."""
        if self.is_open:
            return False
        _replace(self._order, {"run": asdict(wandb_run), "config": scrub_plain(config)})
        return True

    def order(self) -> tuple[WandbRun, dict[str, Any]]:
        """How the run is opened, and its config."""
        order = json.loads(self._order.read_text("utf-8"))
        run = order["run"]
        return WandbRun(**{**run, "tags": tuple(run["tags"])}), order["config"]

    def say(self, kind: str, **facts: Any) -> None:
        """Append one line, scrubbed; nothing where the run has no W&B run, or no room for it."""
        if not self.is_open:
            return
        line = json.dumps({"kind": kind, "t": time.time(), **scrub_plain(facts)}, default=str)
        with suppress(OSError), self.lines.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    @property
    def has_ended(self) -> bool:
        """Whether the last thing said is that the run has ended."""
        said = self.unread(0)
        return bool(said) and said[-1][0]["kind"] == "end"

    @property
    def is_sent(self) -> bool:
        """Whether the writer has sent everything that was said."""
        return not self.unread(self.state().done)

    def has_alert(self, mark: str) -> bool:
        """Whether this alert was said before, by whichever parent."""
        return any(said["kind"] == "alert" and said["mark"] == mark for said, _ in self.unread(0))

    def has_child(self, child: str) -> bool:
        """Whether the log of this step on the pod was said before."""
        return any(said["kind"] == "child" and said["id"] == child for said, _ in self.unread(0))

    def unread(self, done: int) -> list[tuple[dict[str, Any], int]]:
        """What was said after `done` bytes, each with the number of bytes up to its end."""
        if not self.lines.exists():
            return []
        found = []
        with self.lines.open("rb") as file:
            file.seek(done)
            while (line := file.readline()).endswith(b"\n"):
                done += len(line)
                found.append((_read(line), done))
        return found

    def state(self) -> State:
        """What the writer says of itself; before it has said anything, that nothing is sent."""
        try:
            return State(**json.loads(self._state.read_text("utf-8")))
        except FileNotFoundError:
            return State()

    def note(self, state: State) -> None:
        """Write the writer's state."""
        _replace(self._state, asdict(state))

    @property
    def _order(self) -> Path:
        return self.folder / "order.json"

    @property
    def _state(self) -> Path:
        return self.folder / "state.json"


def _read(line: bytes) -> dict[str, Any]:
    """A line that a killed parent did not finish counts as said, and says nothing."""
    try:
        return dict(json.loads(line))
    except ValueError:
        return {"kind": "broken"}


def _replace(path: Path, value: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".new")
    unfinished.write_text(json.dumps(value, default=str), encoding="utf-8")
    unfinished.replace(path)
