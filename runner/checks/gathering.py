"""All checks of task files, in one place for everybody who asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from runner.adapt import cadence_warnings
from runner.callbacks_found import callback_findings
from runner.checks.axolotl_says import axolotl_says
from runner.checks.characters import character_findings, line_findings
from runner.checks.evaluation import evaluation_findings
from runner.checks.ground import Ground
from runner.checks.hub import HubSight, hub_findings, token_findings
from runner.checks.keys import key_findings
from runner.checks.local_files import file_findings
from runner.checks.pairs import pair_findings
from runner.checks.placeholders import placeholder_findings
from runner.checks.rates import rate_findings
from runner.checks.tracking import tracking_findings
from runner.checks.volume import volume_findings
from runner.finding import Finding
from runner.renting import renting_findings
from runner.task_secrets import secret_findings
from runner.taskfile import TaskFile, TaskFileError

Verdict = Literal["ok", "warn", "stop"]
MakeHub = Callable[[Ground], HubSight]


@dataclass(frozen=True)
class Checks:
    """What was found in one task file, in the order of its lines. `notes` say what could not be
    looked at; they change no verdict.
    """

    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """stop, warn or ok."""
        levels = {finding.level for finding in self.findings}
        return "stop" if "stop" in levels else "warn" if levels else "ok"

    def with_more(self, findings: Iterable[Finding]) -> Checks:
        """The same with findings of another source."""
        return _sorted([*self.findings, *findings], self.notes)


def check_tasks(
    asked: Sequence[tuple[TaskFile, Ground]],
    *,
    hub: MakeHub | None = None,
    axolotl: Path | None = None,
    prove: bool = False,
) -> list[Checks]:
    """Check task files.

    `hub` makes the hub for a run's variables; None asks none. `axolotl` is the trainer's
    environment; None leaves its verdict out. Only files without a stop are shown to axolotl. With
    `prove` a rented run's repository is made, which proves that it can be written to.
    """
    found = [_one(task, ground, hub, prove=prove) for task, ground in asked]
    if axolotl is None:
        return found
    good = [number for number, each in enumerate(found) if each.verdict != "stop"]
    said = axolotl_says([asked[number][0] for number in good], axolotl)
    for number, each in zip(good, said, strict=True):
        before = found[number]
        found[number] = _sorted([*before.findings, *each.findings], [*before.notes, *each.notes])
    return found


def faults_of(error: TaskFileError, text: str) -> Checks:
    """What is wrong with a file that can't be read, odd characters of that line included."""
    lines = {each.line for each in error.findings if each.code == "yaml"}
    odd = [found for line in lines for found in line_findings(text, line)]
    return _sorted([*error.findings, *odd], [])


def _one(task: TaskFile, ground: Ground, hub: MakeHub | None, *, prove: bool) -> Checks:
    findings = list(_offline(task, ground))
    notes: list[str] = []
    if hub is not None:
        more, notes = hub_findings(task, ground, hub(ground), prove=prove)
        findings += more
    return _sorted(findings, notes)


def _offline(task: TaskFile, ground: Ground) -> Iterator[Finding]:
    yield from task.warnings
    yield from secret_findings(task)
    yield from renting_findings(task, ground.clouds)
    yield from character_findings(task.source)
    yield from key_findings(task)
    yield from pair_findings(task)
    yield from placeholder_findings(task)
    yield from file_findings(task, ground)
    yield from callback_findings(task, ground.read) if ground.read else ()
    yield from volume_findings(task, ground)
    yield from evaluation_findings(task, ground)
    yield from rate_findings(task)
    yield from cadence_warnings(task, planned=_planned(task))
    yield from tracking_findings(task, ground)
    yield from token_findings(task, ground)


def _planned(task: TaskFile) -> int | None:
    steps = task.axolotl.get("max_steps")
    return steps if isinstance(steps, int) and steps > 0 else None


def _sorted(findings: Sequence[Finding], notes: Sequence[str]) -> Checks:
    ordered = sorted(dict.fromkeys(findings), key=lambda each: (each.line, each.column))
    return Checks(tuple(ordered), tuple(dict.fromkeys(notes)))
