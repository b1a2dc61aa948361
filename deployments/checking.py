"""`axolotl-runner check`: read task files, say what is wrong and where."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from deployments.estimating import estimate_task
from runner.checks.gathering import Checks, Verdict, check_tasks, faults_of
from runner.checks.ground import Ground
from runner.checks.grounds import ground_of_file
from runner.checks.hub import HubSight
from runner.errors import ConfigError
from runner.estimates.estimate import Estimate
from runner.estimates.telling import as_json as estimate_as_json
from runner.estimates.telling import estimate_findings, lines
from runner.finding import Finding, stop
from runner.home import axolotl_environment
from runner.taskfile import TaskFile, TaskFileError, read_task_file


@dataclass(frozen=True)
class Checked:
    """What was found in one file; `verdict` is ok, warn or stop. `notes` say what could not be
    looked at.
    """

    file: str
    verdict: Verdict
    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()
    estimate: Estimate | None = None


def check_files(files: Sequence[Path], *, as_json: bool, offline: bool = False) -> int:
    """Check each file; 0 when all are ok or only warned about, 2 when one must be stopped."""
    results = checked(files, offline=offline)
    if as_json:
        print(json.dumps([_as_json(result) for result in results], indent=2))
    else:
        print("\n\n".join(shown(result) for result in results))
    return 2 if any(result.verdict == "stop" for result in results) else 0


def checked(files: Sequence[Path], *, offline: bool = False) -> list[Checked]:
    """The verdict on each file; with `offline` no hub and no cloud is asked."""
    read = [_read(file) for file in files]
    good = [(each, ground_of_file(file, each)) for file, each in _usable(files, read)]
    found = iter(check_tasks(good, hub=None if offline else _hub, axolotl=axolotl_environment()))
    results = []
    for file, each in zip(files, read, strict=True):
        if isinstance(each, Checks):
            results.append(Checked(str(file), each.verdict, each.findings))
            continue
        estimate = estimate_task(each, folders=(file.parent, Path()), offline=offline)
        checks = next(found).with_more(estimate_findings(each, estimate, each.settings.cloud))
        results.append(Checked(str(file), checks.verdict, checks.findings, checks.notes, estimate))
    return results


def shown(result: Checked) -> str:
    """One finding a line, what stops first, and the verdict as the last line."""
    said = [
        f"{finding.level:5} {finding.sentence(result.file)}"
        for level in ("stop", "warn")
        for finding in result.findings
        if finding.level == level
    ]
    said += lines(result.estimate) if result.estimate else []
    said += [f"note  {result.file}: {note}" for note in result.notes]
    return "\n".join([*said, f"{result.file}: {result.verdict}{_counts(result)}"])


def _as_json(result: Checked) -> dict[str, object]:
    found = estimate_as_json(result.estimate) if result.estimate else None
    return {**asdict(replace(result, estimate=None)), "estimate": found}


def _counts(result: Checked) -> str:
    levels = [finding.level for finding in result.findings]
    stops, warnings = levels.count("stop"), levels.count("warn")
    words = [f"{stops} to correct"] if stops else []
    words += [f"{warnings} warning{'s' if warnings > 1 else ''}"] if warnings else []
    return f" ({', '.join(words)})" if words else ""


def _read(file: Path) -> TaskFile | Checks:
    try:
        return read_task_file(file)
    except TaskFileError as error:
        return faults_of(error, _text(file))
    except ConfigError as error:
        return Checks((stop("config", str(error), ""),))


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _usable(
    files: Sequence[Path], read: Sequence[TaskFile | Checks]
) -> list[tuple[Path, TaskFile]]:
    return [
        (file, each) for file, each in zip(files, read, strict=True) if isinstance(each, TaskFile)
    ]


def _hub(ground: Ground) -> HubSight:
    from blocks.hub import hub_of  # the import costs 0.5 s

    return hub_of(ground.environment or {})
