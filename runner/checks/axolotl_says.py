"""axolotl's own verdict on task files, where its environment is there.

One process for all files: its imports take 6 s of CPU, each file some milliseconds. It sees no GPU,
so it is told what the machine that will be rented can do.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.adapt import REMOVED
from runner.block import dotted
from runner.finding import Finding, stop, warn
from runner.home import REPOSITORY
from runner.settings import RunnerSettings
from runner.taskfile import TaskFile
from runner.yaml_source import Path as Place

SCRIPT = REPOSITORY / "pod" / "validate.py"
LIMIT_S = 180.0  # a machine that has never imported torch needs a minute
MORE_S = 2.0  # for each file
MOST_FINDINGS = 8
# What axolotl says of the machine that it runs on, not of the file.
OF_THE_MACHINE = re.compile(
    r"not installed|pip install|no flash-attn build|missing one of|requires PyTorch|torch version"
    r"|requires a transformers|Installed transformers"
)
QUIET = {
    "AXOLOTL_DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "ACCELERATE_USE_CPU": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
# Compute capabilities by the names that clouds use; https://developer.nvidia.com/cuda-gpus
GENERATIONS = (
    (r"\bG?B[23]00\b", 100),
    (r"50[5-9]0|PRO [456]000|Blackwell", 120),
    (r"\bG?H[12]00\b|\bH20\b", 90),
    (r"\bL4|\bL20\b|\b40[5-9]0|\bAda\b", 89),
    (r"\bA100|\bA30\b", 80),
    (r"\bA40\b|A[2456]000|\bA1[06]\b|\b30[5-9]0", 86),
    (r"\bT4\b|20[678]0|TITAN RTX|RTX [4568]000\b", 75),
    (r"\bV100|TITAN V", 70),
)
NEWEST_COMMON = 90


@dataclass(frozen=True)
class Said:
    """What axolotl says of one file, and why it could not say more."""

    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()


def axolotl_says(tasks: Sequence[TaskFile], environment: Path) -> list[Said]:
    """The verdict on each task file; a note where there is none."""
    if not tasks:
        return []
    python = environment.absolute() / "bin" / "python"
    if not python.is_file():
        return [Said(notes=("axolotl's own validation was left out: it is not here",))] * len(tasks)
    asked: list[dict[str, object]] = [
        {"config": _config(task), "capabilities": capabilities(task.settings)} for task in tasks
    ]
    try:
        version, answers = _ask(python, asked)
    except subprocess.TimeoutExpired as late:
        note = f"axolotl's own validation did not end within {late.timeout:.0f} s"
        return [Said(notes=(note,))] * len(tasks)
    except (OSError, ValueError, LookupError) as error:
        note = f"axolotl's own validation did not work: {_last_line(str(error))}"
        return [Said(notes=(note,))] * len(tasks)
    return [_said(task, each, version) for task, each in zip(tasks, answers, strict=True)]


def capabilities(settings: RunnerSettings) -> dict[str, object]:
    """What axolotl would find on the best of the GPUs that the task file names; where it names
    none, or none that we know, what refuses least.
    """
    known = [number for name in settings.gpu for number in _generation(name)]
    best = max(known, default=NEWEST_COMMON)
    return {
        "bf16": best >= 80,
        "fp8": best >= 90,
        "tf32": best >= 80,
        "n_gpu": settings.gpu_count[0],
        "compute_capability": f"sm_{best}",
    }


def _generation(name: str) -> Iterator[int]:
    for pattern, number in GENERATIONS:
        if re.search(pattern, name):
            yield number
            return


def _config(task: TaskFile) -> dict[str, object]:
    """What axolotl is given, as far as its validation cares."""
    kept = {key: value for key, value in task.axolotl.items() if key not in REMOVED}
    return {**kept, "output_dir": "out"}  # the run's own folder, whatever the file says


def _ask(python: Path, asked: list[dict[str, object]]) -> tuple[str, list[list[Any]]]:
    with tempfile.TemporaryDirectory(prefix="axr-check-") as folder:
        question, answer = Path(folder, "asked.json"), Path(folder, "answers.json")
        question.write_text(json.dumps(asked, default=str), encoding="utf-8")
        done = subprocess.run(
            [str(python), str(SCRIPT), str(question), str(answer)],
            env={**_environment(), **QUIET, "HF_HOME": folder},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=LIMIT_S + MORE_S * len(asked),
            check=False,
        )
        if not answer.is_file():
            raise ValueError(done.stderr.decode("utf-8", "replace"))
        found = json.loads(answer.read_text(encoding="utf-8"))
        return str(found["version"]), list(found["answers"])


def _environment() -> dict[str, str]:
    """Nothing of ours but what a program needs: no secret reaches it."""
    return {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}


def _said(task: TaskFile, answers: Sequence[Mapping[str, Any]], version: str) -> Said:
    findings: dict[tuple[int, int], Finding] = {}
    notes = []
    for each in answers:
        message = " ".join(str(each["message"]).split())[:400]
        if each["kind"] == "unsure" or OF_THE_MACHINE.search(message):
            notes.append(f"axolotl could not say everything here: {message}")
            continue
        key, at = _place(task, each["path"], message)
        prefix = f"{key}: " if key else ""
        if each["kind"] == "refused":
            hint = "correct it"
            found = stop(
                "axolotl-refuses", f"{prefix}{message} (axolotl {version})", hint, key=key, at=at
            )
        else:
            found = warn(
                "axolotl-stumbles",
                f"axolotl {version} fails on these values: {message}",
                "check them",
                key=key,
                at=at,
            )
        findings.setdefault(at, found)  # one kind of value out of several gives several errors
    return Said(tuple(findings.values())[:MOST_FINDINGS], tuple(dict.fromkeys(notes)))


def _place(task: TaskFile, path: Sequence[str | int], message: str) -> tuple[str, tuple[int, int]]:
    """Where axolotl's word belongs: its own path without the names of classes, else the first key
    of the file that its message names.
    """
    here: Place = ()
    for step in path:
        if task.source.at((*here, step)) is not None:
            here = (*here, step)
    if not here:
        named = [
            (found.start(), -len(key), key) for key in task.axolotl for found in _word(key, message)
        ]
        here = (min(named)[2],) if named else ()
    missing = dotted(tuple(path)) if path and not here else ""
    return (dotted(here), task.place(*here)) if here else (missing, (0, 0))


def _word(key: str, message: str) -> Iterator[re.Match[str]]:
    found = re.search(rf"(?<![\w.]){re.escape(key)}(?!\w)", message)
    if found:
        yield found


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no word"])[-1][:200]
