"""The process that sends a run's feed (runner/wandb_feed.py) to W&B: `python -m
runner.wandb_writer FOLDER`, with the run's folder.

It opens the W&B run as its primary writer, which alone says how the run ends. It lives as long as
whoever holds its standard input; then it sends what is left and goes. Without an `end` in the feed
it leaves the W&B run as it is: the next parent's writer goes on, and waits until this one is gone.

Not covered: a line that was sent just before a kill may be sent again.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from runner.locks import hold
from runner.wandb_feed import AXIS, Feed, State
from runner.wandb_open import Opened, open_wandb
from runner.wandb_run import WandbRun

LOOK_EVERY = 0.5
TITLE_LENGTH = 63  # of an alert, W&B's limit
# How often wandb writes to disk and sends what it was given (its own: 15 s each), and how long it
# has for the last of it where it is not closed.
FLUSH_EVERY, FLUSHED_WITHIN = 1.0, 4.0


def main(folder: Path, is_wanted: Callable[[], bool]) -> None:
    """Send the feed until it ends, or until nobody wants it any more."""
    feed = Feed(folder)
    with hold(feed.lock, wait=True):
        state = feed.state()
        while is_wanted() and not feed.unread(state.done):
            time.sleep(LOOK_EVERY)
        while feed.unread(state.done):  # more than one end, where a run was resumed meanwhile
            state = _send(feed, state, is_wanted)


def _send(feed: Feed, state: State, is_wanted: Callable[[], bool]) -> State:
    """Open the W&B run and send up to the next `end`; the state after it."""
    run, config = feed.order()
    try:
        opened = open_wandb(_settings(run, feed), config=config)
    except ImportError as missing:
        opened = Opened(_Nothing(), "disabled", f"wandb is not installed: {missing}")
    # What went wrong once stays said, also when a later writer fares better.
    trouble = "; ".join(dict.fromkeys(part for part in (state.trouble, opened.trouble) if part))
    state = replace(state, url=opened.url or state.url, mode=opened.mode, trouble=trouble)
    feed.note(state)
    axes: set[str] = set()
    while True:
        last_look = not is_wanted()
        for said, done in feed.unread(state.done):
            ended = said["kind"] == "end"
            if ended:
                opened.run.summary.update(said["summary"])
                if not opened.leave(int(said["exit_code"])):
                    state = replace(state, trouble=state.trouble or "it did not finish in time")
            else:
                _take(opened.run, said, axes)
            state = replace(state, done=done)
            if ended:
                feed.note(state)
                return state
        feed.note(state)
        if last_look:
            time.sleep(FLUSHED_WITHIN)
            return state  # a finish would call a run ended that goes on with the next parent
        time.sleep(LOOK_EVERY)


def _settings(run: WandbRun, feed: Feed) -> dict[str, Any]:
    return {
        "mode": run.mode,
        "run_id": run.id,
        "resume": "allow",
        "project": run.project,
        "entity": run.entity,
        "run_name": run.name,
        "run_tags": run.tags or None,
        "root_dir": str(feed.run_folder),
        "x_label": "control",
        "x_primary": True,
        "x_update_finish_state": True,
        "x_transaction_log_flush_interval": FLUSH_EVERY,
        "x_file_stream_transmit_interval": FLUSH_EVERY,
        # Of this machine only what the feed says.
        "console": "off",
        "silent": True,
        "disable_git": True,
        "disable_code": True,
        "x_disable_stats": True,
        "x_disable_machine_info": True,
        "x_save_requirements": False,
    }


def _take(run: Any, said: dict[str, Any], axes: set[str]) -> None:
    match said["kind"]:
        case "line":
            run.write_logs(said["text"])
        case "row":
            for name in sorted(said["values"].keys() - axes - {AXIS}):
                axes.add(name)
                run.define_metric(name, step_metric=AXIS)
            run.log(said["values"])
        case "alert":
            run.alert(said["title"][:TITLE_LENGTH], said["text"], level=said["level"])


class _Nothing:
    """A run that swallows everything, where there is no wandb."""

    url = ""

    def __getattr__(self, _: str) -> _Nothing:
        return self

    def __call__(self, *_: Any, **__: Any) -> None:
        return


def _while_input_is_open() -> Callable[[], bool]:
    gone = threading.Event()

    def wait() -> None:
        while os.read(0, 4096):
            pass
        gone.set()

    threading.Thread(target=wait, daemon=True).start()
    return lambda: not gone.is_set()


if __name__ == "__main__":
    main(Path(sys.argv[1]), _while_input_is_open())
    sys.stderr.flush()
    os._exit(0)  # wandb's own way out waits for its service
