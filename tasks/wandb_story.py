"""What a run's parent tells W&B: its log, its phases with their seconds and cost, spikes, resumes
and the end. All of it is lines in a file (runner/wandb_feed.py); the process that sends them is
started here and lives as long as this one. Nothing here waits for W&B but the end, for some
seconds, and nothing raises.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from prefect import task
from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.sorting import LogSort

from blocks.grants import granted
from blocks.logs import log
from runner.errors import ConfigError, Outcome
from runner.home import REPOSITORY, home
from runner.notice import split_long_lines
from runner.report import Wandb
from runner.secrets import scrub
from runner.settings import RunnerSettings
from runner.task_secrets import named_secrets
from runner.wandb_feed import AXIS, Feed
from runner.wandb_run import NO_KEY, WandbRun, sync_line, wandb_run
from tasks.api import API_AWAY, api, asking_once
from tasks.run import Order, Run, open_order
from tasks.spending import cost_so_far
from tasks.standing import recall

# Of Prefect's 30 s for a cancelled run most belong to the trainer's last checkpoint.
SENT_WITHIN = 10.0
COST_EVERY = 60.0
MOST_LINES = 200  # of a step on the pod: one page of the API
# Behind the first line: our facts as JSON, the trainer's last lines, Prefect's own stack.
PREFECTS_OWN = ("Finished in state", "Engine execution exited")
LOGGERS = ("prefect.flow_runs", "prefect.task_runs", "axolotl_runner")
ALERTS = {"spike": "WARN", "resumed": "INFO", "budget": "WARN", "idle": "WARN"}

_writer: subprocess.Popen[bytes] | None = None  # of this process, which works for one run


def wandb_of(run: Run, order: Order) -> WandbRun | None:
    """The W&B run that this run writes to; None without one."""
    return wandb_run(
        order.task.axolotl, _wandb_variables(order.settings), run=run.id, task_file=run.task_file
    )


@task
def track(run: Run, order: Order) -> None:
    """Open the run's W&B run, before there is a pod; nothing where the task file names none."""
    found = wandb_of(run, order)
    if found is None:
        return
    feed = Feed(run.folder)
    facts = {"run": run.id, "task": run.task_file, "commit": run.commit}
    if feed.open(found, {**facts, "axolotl": dict(order.task.axolotl)}):
        _say_how(run, order, found)
        phase(run.id, "check", (datetime.now(UTC) - run.began).total_seconds())
    feed.say("line", text=f"run {run.id}: {run.task_file}, on {' or '.join(order.clouds)}")
    _pass_on_log(feed)
    _start_writer(feed, lambda: _wandb_variables(order.settings))


def phase(run_id: str, name: str, seconds: float) -> None:
    """A phase has taken so many seconds by now, and the run has cost so much."""
    feed = _feed(run_id)
    if feed.is_open:
        feed.say("line", text=f"{name}: {seconds:.1f} s")
        _row(feed, run_id, {f"runner/seconds/{name}": round(seconds, 3)})


def alert(run: Run, kind: str, reason: str, attempt: object = "") -> None:
    """What people are told of, as an alert of W&B, once for each (kind, attempt)."""
    feed = _feed(run.id)
    mark = f"{run.generation}.{kind}.{attempt}"
    if kind in ALERTS and feed.is_open and not feed.has_alert(mark):
        title = f"{kind}: {run.task_file}"
        feed.say("alert", mark=mark, title=title, text=reason, level=ALERTS[kind])


def with_cost(run_id: str, look: Callable[[], None]) -> Callable[[], None]:
    """`look`, and once a minute a row with what the run has cost so far."""
    feed = _feed(run_id)
    if not feed.is_open:
        return look
    due = time.monotonic() + COST_EVERY

    def look_and_tell() -> None:
        nonlocal due
        look()
        if time.monotonic() >= due:
            due = time.monotonic() + COST_EVERY
            _row(feed, run_id, {})

    return look_and_tell


def tell_child(run_id: str, child: FlowRun) -> None:
    """A step on the pod is over: its log, which only the server has, and how long it took; once,
    also when parents die meanwhile.
    """
    feed = _feed(run_id)
    if not feed.is_open or feed.has_child(str(child.id)):
        return
    try:
        with asking_once():
            of_child = LogFilter(flow_run_id=LogFilterFlowRunId(any_=[child.id]))
            newest = LogSort.TIMESTAMP_DESC
            found = api().read_logs(of_child, limit=MOST_LINES, sort=newest)
            ended = api().read_flow_run(child.id)
    except API_AWAY as away:
        log().debug("The log of %s can't be read now: %s", child.name, away)
        return
    for record in reversed(found):
        first = record.message.partition("\n")[0]
        text = first if record.message.startswith(PREFECTS_OWN) else record.message
        _say_line(feed, f"{child.name}: {text}")
    feed.say("child", id=str(child.id))
    if child.name.startswith("train-") and ended.start_time and ended.end_time:
        attempt = child.name.removeprefix("train-")
        took = (ended.end_time - ended.start_time).total_seconds()
        phase(run_id, f"train attempt {attempt}", took)


def end_story(
    run: Run, outcome: Outcome, reason: str, log_lines: str, summary: dict[str, Any]
) -> None:
    """Say how the run ended and wait some seconds until W&B has it; safe to repeat."""
    feed = Feed(run.folder)
    if not feed.is_open:
        return
    if not feed.has_ended:
        for line in log_lines.splitlines():
            _say_line(feed, line)
        feed.say("line", text=f"{outcome}: {reason}")
        completed = outcome == "completed"
        if not completed and outcome != "cancelled":
            mark = f"{run.generation}.end."
            title = f"{outcome}: {run.task_file}"
            feed.say("alert", mark=mark, title=title, text=reason, level="ERROR")
        _stop_passing_on()
        feed.say("end", exit_code=0 if completed else 1, summary=summary)
    _start_writer(feed, lambda: _variables_of_run(run.id))
    deadline = time.monotonic() + SENT_WITHIN
    while not feed.is_sent and time.monotonic() < deadline:
        time.sleep(0.1)
    if not feed.is_sent:
        log().warning("W&B has not got everything within %.0f s; it is left to it", SENT_WITHIN)
    elif trouble := feed.state().trouble:
        log().warning("W&B: %s", trouble)


def wandb_link(run_id: str) -> str:
    """Where W&B shows the run; empty where it does not."""
    return _feed(run_id).state().url


def wandb_facts(run: Run) -> Wandb | None:
    """Where the run is in W&B, for its report; None where it has none there."""
    feed = Feed(run.folder)
    if not feed.is_open:
        return None
    found, _ = feed.order()
    offline = found.mode == "offline" or feed.state().mode != "shared"
    sync = sync_line(home().shown(run.folder), found.id) if offline else None
    return Wandb(id=found.id, url=feed.state().url or None, sync=sync)


def _say_how(run: Run, order: Order, found: WandbRun) -> None:
    """What the rules made of the task file's W&B settings, once."""
    asked_id = order.task.axolotl.get("wandb_run_id")
    if asked_id and asked_id != found.id:
        log().warning("W&B: wandb_run_id is a name only; the run's id is %s", found.id)
    if found.mode == "offline":
        loudly = log().warning if found.why_offline == NO_KEY else log().info
        line = sync_line(home().shown(run.folder), found.id)
        loudly("W&B is written offline (%s). Afterwards: %s", found.why_offline, line)


def _feed(run_id: str) -> Feed:
    return Feed(home().runs / run_id)  # makes no folder, unlike Home.run


def _row(feed: Feed, run_id: str, values: dict[str, float]) -> None:
    known = recall(run_id)
    began = datetime.fromisoformat(known["began"]) if "began" in known else datetime.now(UTC)
    hours = (datetime.now(UTC) - began).total_seconds() / 3600
    cost = {"runner/cost_usd": round(cost_so_far(known), 4)}
    feed.say("row", values={AXIS: round(hours, 5), **cost, **values})


def _say_line(feed: Feed, text: str) -> None:
    for line in split_long_lines(scrub(text)):
        feed.say("line", text=line)


class _PassOn(logging.Handler):
    """Each line of this process's log goes into the feed."""

    def __init__(self, feed: Feed) -> None:
        super().__init__(logging.INFO)
        self.feed = feed

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):
            _say_line(self.feed, f"{record.levelname}: {self.format(record)}")


def _pass_on_log(feed: Feed) -> None:
    _stop_passing_on()
    handler = _PassOn(feed)
    for name in LOGGERS:
        logging.getLogger(name).addHandler(handler)


def _stop_passing_on() -> None:
    for name in LOGGERS:
        logger = logging.getLogger(name)
        for handler in [each for each in logger.handlers if isinstance(each, _PassOn)]:
            logger.removeHandler(handler)


def _start_writer(feed: Feed, variables: Callable[[], dict[str, str]]) -> None:
    """A second one, of another parent of the run, waits until the first is gone."""
    global _writer
    if _writer is not None and _writer.poll() is None:
        return
    try:
        with feed.log.open("ab") as output:
            _writer = subprocess.Popen(
                [sys.executable, "-m", "runner.wandb_writer", str(feed.run_folder)],
                cwd=REPOSITORY,
                env={**os.environ, **variables()},
                stdin=subprocess.PIPE,  # open as long as this process lives
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
    except OSError as error:
        log().warning("W&B: its writer can't be started: %s", error)


def _variables_of_run(run_id: str) -> dict[str, str]:
    try:
        return _wandb_variables(open_order(run_id).settings)
    except (ConfigError, *API_AWAY):  # a file that was readable once may be gone by now
        return {}


def _wandb_variables(settings: RunnerSettings) -> dict[str, str]:
    """The WANDB_* variables of the control side, the task file's and those that it names."""
    named = [name for name in named_secrets(settings) if name.startswith("WANDB_")]
    given = granted(named) if named else {}
    asked = {name: value for name, value in settings.env.items() if value is not None}
    return {
        name: value
        for name, value in {**os.environ, **asked, **given}.items()
        if name.startswith("WANDB_") and value
    }
