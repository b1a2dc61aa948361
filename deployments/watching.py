"""Following a run in the terminal: one line that changes, and a summary at its end."""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterKey,
    DeploymentFilter,
    DeploymentFilterName,
)
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.client.schemas.sorting import ArtifactSort, FlowRunSort
from prefect.states import Cancelled, Cancelling

from runner.curve import curve_text
from runner.errors import ConfigError
from runner.home import home
from runner.notice import dollars
from runner.report import Report, read_report
from tasks.api import api, write
from tasks.fetching import key as fetch_key
from tasks.progress import key as progress_key
from tasks.report import curve
from tasks.spending import cost_so_far
from tasks.standing import PREFIX, attempts, children

EVERY = 1.0
PLAIN_EVERY = 10.0
# A run is over for the watcher when its report is there; it is written just before the final state.
PHASES = {"prepare": "preparing the pod", "publish": "publishing the model"}


def watch_run(run_id: str, *, cancel_on_interrupt: bool) -> int:
    """Show a run until it ends; 0 completed, 1 otherwise, 2 config error, 130 after Ctrl-C."""
    show = Line()
    try:
        flow_run = _until_final(run_id, show)
    except KeyboardInterrupt:
        show.end()
        if not cancel_on_interrupt:
            print(f"no longer watching; the run goes on. Cancel it: axolotl-runner cancel {run_id}")
            return 130
        print("cancelling: the trainer saves a checkpoint, the pod is given back …")
        request_cancel(run_id)
        flow_run = _until_final(run_id, show)
        show.end()
        _summary(run_id, flow_run)
        return 130
    show.end()
    _summary(run_id, flow_run)
    if flow_run.state_type == StateType.COMPLETED:
        return 0
    return 2 if flow_run.state_name == "ConfigError" else 1


def find_run(wanted: str) -> str:
    """The id of the one run that starts with `wanted`; ConfigError when none or several do."""
    prefect = api()
    recent = prefect.read_flow_runs(
        deployment_filter=DeploymentFilter(name=DeploymentFilterName(any_=["finetune"])),
        sort=FlowRunSort.EXPECTED_START_TIME_DESC,
        limit=200,
    )
    found = [str(run.id) for run in recent if str(run.id).startswith(wanted.lower())]
    if len(found) != 1:
        raise ConfigError(
            f"{'no run' if not found else 'several runs'} with an id that starts with {wanted!r}"
        )
    return found[0]


def request_cancel(run_id: str) -> bool:
    """Ask the server to cancel the run; False when it has already ended."""
    prefect = api()
    state = prefect.read_flow_run(UUID(run_id)).state
    if state is None or state.is_final():
        return False
    wanted: State[Any] = Cancelled() if state.is_scheduled() else Cancelling()
    write(lambda: prefect.set_flow_run_state(UUID(run_id), wanted))
    return True


def wait_for_end(
    run_id: str, *, seconds: float, sleep: Callable[[float], None] = time.sleep
) -> str:
    """Wait until the run has ended, at most `seconds`; the name of the state it is in then."""
    deadline = time.monotonic() + seconds
    while True:
        flow_run = _read(run_id)
        if flow_run.state and (flow_run.state.is_final() or time.monotonic() > deadline):
            return flow_run.state.name or ""
        sleep(EVERY)


class Line:
    """One line that is written over on a terminal; elsewhere a new line, at most each PLAIN_EVERY
    seconds unless something else is being done.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._text = ""
        self._terminal = sys.stdout.isatty()
        self._clock = clock
        self._at = float("-inf")

    def show(self, text: str) -> None:
        """Show the text unless it is what stands there."""
        if text == self._text:
            return
        if self._terminal:
            # A line that is wider than the terminal would wrap, and could not be written over.
            width = shutil.get_terminal_size().columns - 1
            shown = text if len(text) <= width else text[: width - 1] + "…"
            print(f"\r\x1b[K{shown}", end="", flush=True)
        elif _doing(text) != _doing(self._text) or self._clock() - self._at >= PLAIN_EVERY:
            self._at = self._clock()
            print(text, flush=True)
        else:
            return
        self._text = text

    def end(self) -> None:
        """Leave the line standing."""
        if self._terminal and self._text:
            print()
        self._text = ""


def _doing(text: str) -> str:
    """The part of a line that names what is being done; numbers follow."""
    return re.split(r" · (?=step |\$)", text, maxsplit=1)[0]


def _until_final(run_id: str, show: Line) -> FlowRun:
    while True:
        flow_run = _read(run_id)
        if flow_run.state and flow_run.state.is_final() and not flow_run.state.is_crashed():
            return flow_run
        show.show(_line(flow_run))
        time.sleep(EVERY)


def _line(flow_run: FlowRun) -> str:
    facts = {
        k.removeprefix(PREFIX): str(v)
        for k, v in flow_run.labels.items()
        if k.startswith(PREFIX) and v
    }
    phase, cost = _phase(flow_run, facts), dollars(cost_so_far(facts))
    # What the pod itself knew of the money is older.
    parts = [part for part in phase.split(" · ") if not part.startswith("$")]
    return " · ".join([*parts, cost])


def _phase(flow_run: FlowRun, facts: dict[str, str]) -> str:
    if "outcome" in facts:
        return f"{facts['outcome'].replace('_', ' ')} · giving the pod back"
    living = [
        child.name
        for child in children(str(flow_run.id))
        if child.state and not child.state.is_final()
    ]
    step = living[-1].partition("-")[0] if living else ""
    if step == "train":
        return _progress(str(flow_run.id)) or "starting the trainer"
    if step == "prepare":
        return _progress(str(flow_run.id), fetch_key) or PHASES[step]
    if step in PHASES:
        return PHASES[step]
    if "stage" in facts:
        return facts["stage"]
    if any(name.startswith("pod.") for name in facts):
        return _progress(str(flow_run.id)) or "starting the pod"
    return (flow_run.state_name or "").lower()


def _progress(run_id: str, key: Callable[[str], str] = progress_key) -> str | None:
    prefect = api()
    found = prefect.read_artifacts(
        artifact_filter=ArtifactFilter(key=ArtifactFilterKey(any_=[key(run_id)])),
        sort=ArtifactSort.CREATED_DESC,
        limit=1,
    )
    return found[0].description if found else None


def _read(run_id: str) -> FlowRun:
    prefect = api()
    return prefect.read_flow_run(UUID(run_id))


def _summary(run_id: str, flow_run: FlowRun) -> None:
    folder = home().run(run_id)
    print(f"\n{flow_run.state_name}: {(flow_run.state.message or '') if flow_run.state else ''}")
    path = folder / "report.json"
    if not path.exists():
        return
    report = read_report(path)
    points = curve(attempts(run_id))
    if points:
        print(curve_text(points))
    for line in _facts(report):
        print(line)
    print(f"report     {home().shown(folder / 'report.md')}")


def _facts(report: Report) -> list[str]:
    lines = []
    for attempt in report.attempts:
        start = (
            f"from checkpoint {attempt.from_checkpoint}"
            if attempt.from_checkpoint
            else "from the start"
        )
        alarm = (
            f", onset {attempt.onset_step}, alarm {attempt.alarm_step}"
            if attempt.alarm_step
            else ""
        )
        lines.append(
            f"attempt {attempt.n}  {attempt.outcome} ({start}, to step {attempt.last_step}{alarm})"
        )
    if report.model_dir:
        lines.append(f"model      {home().shown(home().path / report.model_dir)}")
    lines.append(f"cost       {dollars(report.cost_usd)}, {report.seconds.total or 0:.0f} s")
    return lines
