"""The checks of trainer_side.py and eval_side.py, in the environment that has torch."""

from __future__ import annotations

import json
import os
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

REPOSITORY = Path(__file__).resolve().parents[2]
SIDES = [REPOSITORY / "tests" / "e2e" / f"{name}_side.py" for name in ("trainer", "eval")]
NAMES = [
    (side, name)
    for side in SIDES
    for name in re.findall(r"^@check\ndef (\w+)", side.read_text(), re.MULTILINE)
]


@cache
def results(side: Path) -> dict[str, str]:
    """What each check said, by name; empty for a passed one. All of a file run in one process."""
    env = Path(os.environ.get("AXR_AXOLOTL_ENV", REPOSITORY / ".venv-axolotl"))
    if not (env / "bin" / "python").exists():
        pytest.skip(f"no axolotl in {env}: run `make setup` or set AXR_AXOLOTL_ENV")
    done = subprocess.run(
        [env / "bin" / "python", side],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=240,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"check')]
    assert lines, done.stderr[-3000:]
    return {line["check"]: line["said"] for line in lines}


@pytest.mark.parametrize(("side", "name"), NAMES, ids=[name for _, name in NAMES])
def test_a_check_in_the_trainers_environment_passes(side: Path, name: str) -> None:
    """Schedules are torch's and axolotl's own; the loop runs on a trainer that is a script."""
    assert results(side).get(name, "it did not run") == ""
