"""The flows can be imported from wherever Prefect does it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import prefect

from runner.home import REPOSITORY


def test_cancellation_hooks_find_our_packages_and_not_those_of_prefect() -> None:
    """Prefect runs them with prefect/runner/ first in the path, where a runner.py lies."""
    folder = Path(prefect.__file__).parent / "runner"
    assert (folder / "runner.py").exists()
    code = f"import sys; sys.path.insert(0, {str(folder)!r}); import flows.finetune"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
