"""`axolotl-runner check`: read task files, say what is wrong and where."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from deployments.estimating import estimate_task
from runner.errors import ConfigError
from runner.estimates.estimate import Estimate
from runner.estimates.telling import as_json as estimate_as_json
from runner.estimates.telling import estimate_findings, lines
from runner.finding import Finding
from runner.renting import renting_findings
from runner.task_secrets import secret_findings
from runner.taskfile import TaskFileError, read_task_file


@dataclass(frozen=True)
class Checked:
    """What was found in one file; `verdict` is ok, warn or stop."""

    file: str
    verdict: str
    findings: tuple[Finding, ...]
    estimate: Estimate | None = None


def check_files(files: list[Path], *, as_json: bool, offline: bool = True) -> int:
    """Check each file; 0 when all are ok or only warned about, 2 when one must be stopped.

    `offline`: no hub and no cloud is asked.
    """
    results = [_check(file, offline=offline) for file in files]
    if as_json:
        print(json.dumps([_as_json(result) for result in results], indent=2))
        return _code(results)
    for result in results:
        print(f"{result.file}: {result.verdict}")
        for finding in result.findings:
            print(f"  {finding.sentence(result.file)}")
        for line in lines(result.estimate) if result.estimate else ():
            print(f"  {line}")
    return _code(results)


def _code(results: list[Checked]) -> int:
    return 2 if any(result.verdict == "stop" for result in results) else 0


def _as_json(result: Checked) -> dict[str, object]:
    found = estimate_as_json(result.estimate) if result.estimate else None
    return {**asdict(replace(result, estimate=None)), "estimate": found}


def _check(file: Path, *, offline: bool) -> Checked:
    found = None
    try:
        task = read_task_file(file)
        rented = renting_findings(task, task.settings.cloud)
        found = estimate_task(task, folders=(file.parent, Path()), offline=offline)
        needs = estimate_findings(task, found, task.settings.cloud)
        findings: tuple[Finding, ...] = (*task.warnings, *secret_findings(task), *rented, *needs)
    except TaskFileError as error:
        findings = tuple(error.findings)
    except ConfigError as error:
        findings = (Finding(1, 1, "", "stop", "config", str(error), ""),)
    levels = {finding.level for finding in findings}
    verdict = "stop" if "stop" in levels else "warn" if levels else "ok"
    return Checked(str(file), verdict, findings, found)
