"""`axolotl-runner check`: read task files, say what is wrong and where."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from runner.callbacks_found import callback_findings, reading, repository_root
from runner.errors import ConfigError
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


def check_files(files: list[Path], *, as_json: bool) -> int:
    """Check each file; 0 when all are ok or only warned about, 2 when one must be stopped."""
    results = [_check(file) for file in files]
    if as_json:
        print(json.dumps([asdict(result) for result in results], indent=2))
        return _code(results)
    for result in results:
        print(f"{result.file}: {result.verdict}")
        for finding in result.findings:
            print(f"  {finding.sentence(result.file)}")
    return _code(results)


def _code(results: list[Checked]) -> int:
    return 2 if any(result.verdict == "stop" for result in results) else 0


def _check(file: Path) -> Checked:
    try:
        task = read_task_file(file)
        rented = renting_findings(task, task.settings.cloud)
        called = callback_findings(task, reading(repository_root(file)))
        findings: tuple[Finding, ...] = (*task.warnings, *secret_findings(task), *rented, *called)
    except TaskFileError as error:
        findings = tuple(error.findings)
    except ConfigError as error:
        findings = (Finding(1, 1, "", "stop", "config", str(error), ""),)
    levels = {finding.level for finding in findings}
    verdict = "stop" if "stop" in levels else "warn" if levels else "ok"
    return Checked(str(file), verdict, findings)
