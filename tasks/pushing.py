"""The steps of `dispatch`, and the answer to a push: on the commit, in the UI, and as a notice."""

from __future__ import annotations

import hashlib
from uuid import UUID

from prefect import task
from prefect.client.schemas.actions import ArtifactCreate
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterTags
from prefect.runtime import flow_run

from blocks.commit_status import CommitStatus, set_status
from blocks.logs import log
from blocks.repository import Repository, find_repository
from runner.errors import Outcome
from runner.notice import compose
from runner.push.changes import shown
from runner.push.rules import read_rules
from tasks.api import api, write
from tasks.dispatching import Plan, Refused, Started, Told, plan, start
from tasks.notify import leave, ui_link
from tasks.retrying import patiently
from tasks.run import Run


@task
def repository_of(told: Told) -> Repository:
    """The connected repository that an event is about; Refused when there is none."""
    found = find_repository(told.repository)
    if found is None:
        raise Refused(
            f"{told.repository} is not connected: axolotl-runner connect {told.repository}"
        )
    return found


@task(**patiently(times=5, factor=3))
def what_to_do(repository: Repository, told: Told) -> Plan:
    """Look at the repository itself: what the push starts, what is wrong, what is passed over."""
    found = plan(repository, told, read_rules())
    for each in found.passed_over:
        log().info("%s starts nothing: %s", each.path, each.reason)
    for bad in found.bad:
        log().error("%s is not started:\n%s", bad.path, bad.reason)
    return found


@task
def start_runs(repository: Repository, told: Told, found: Plan) -> list[Started]:
    """One run for each good task file that has none yet."""
    started = start(repository.name, told.push.after, found.wanted)
    for each in started:
        log().info("%s → run %s%s", each.path, each.run, "" if each.new else " (was there already)")
    return started


@task
def answer(repository: Repository, told: Told, found: Plan, started: list[Started]) -> str:
    """Say what came of the push, on the commit and in the UI; bad files are told once."""
    for each in started:
        if each.new:
            _say(
                repository, told, CommitStatus(each.path, "pending", "training", ui_link(each.run))
            )
    first = _is_first(told)
    for bad in found.bad:
        line = bad.reason.partition("\n")[0]
        link = ui_link(str(flow_run.id))
        _say(repository, told, CommitStatus(bad.path, "failure", line, link))
        if first:
            _tell(bad.path, bad.reason)
    _show(told, found, started)
    new = sum(each.new for each in started)
    again = f", {len(started) - new} were there already" if new < len(started) else ""
    wrong = f"; not started: {', '.join(bad.path for bad in found.bad)}" if found.bad else ""
    return f"{new} started{again}{wrong}"


def answer_end(run: Run, outcome: Outcome, reason: str) -> None:
    """Say on the commit how the run of its task file ended; nothing unless it was pushed."""
    if run.repository is None or run.commit is None:
        return
    repository = find_repository(run.repository)
    if repository is None:
        return
    good = outcome == "completed"
    words = f"{outcome.replace('_', ' ')}{f': {reason}' if reason and not good else ''}"
    status = CommitStatus(run.task_file, "success" if good else "failure", words, ui_link(run.id))
    set_status(repository, run.commit, status)


def _say(repository: Repository, told: Told, status: CommitStatus) -> None:
    set_status(repository, told.push.after, status)


def _tell(path: str, reason: str) -> None:
    notice = compose(
        "failed",
        run=str(flow_run.id),
        task=path,
        reason=reason,
        outcome="config_error",
        link=ui_link(str(flow_run.id)),
    )
    leave(notice, mark=f"{flow_run.id} {path}")


def _is_first(told: Told) -> bool:
    """True unless another dispatch has told of this push; marks this one as having done so."""
    push = told.push
    name = f"{told.repository} {push.ref} {push.after}".lower()
    mark = f"told:{hashlib.sha256(name.encode()).hexdigest()[:24]}"
    prefect, own = api(), UUID(str(flow_run.id))
    others = FlowRunFilter(tags=FlowRunFilterTags(all_=[mark]))
    first = all(run.id == own for run in prefect.read_flow_runs(flow_run_filter=others, limit=5))
    tags = {*prefect.read_flow_run(own).tags, mark}
    write(lambda: prefect.update_flow_run(own, tags=tags))
    return first


def _show(told: Told, found: Plan, started: list[Started]) -> None:
    """A table of the whole push in the UI."""
    rows = [(each.path, "started" if each.new else "was there", each.run) for each in started]
    rows += [(bad.path, "not started", bad.reason.partition("\n")[0]) for bad in found.bad]
    rows += [(each.path, "passed over", each.reason) for each in found.passed_over]
    lines = ["| file | | |", "|---|---|---|"]
    lines += [f"| {_cell(path)} | {what} | {_cell(more)} |" for path, what, more in rows]
    push = told.push
    head = f"{told.repository} `{_cell(push.ref)}` at `{push.after}`\n\n"
    artifact = ArtifactCreate(
        key=f"push-{push.after[:12]}",
        type="markdown",
        data=head + "\n".join(lines),
        flow_run_id=UUID(str(flow_run.id)),
    )
    write(lambda: api().create_artifact(artifact))


def _cell(text: str) -> str:
    return shown(text).replace("|", "\\|").replace("\n", " ").replace("`", "'").replace("<", "&lt;")
