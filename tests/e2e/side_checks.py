"""Checks that need torch: collected by a decorator, run in one process, told a line each.

`python tests/e2e/trainer_side.py` prints one JSON object a line: {check, passed, said}.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable

CHECKS: list[Callable[[], None]] = []


def check(function: Callable[[], None]) -> Callable[[], None]:
    """Collect a check."""
    CHECKS.append(function)
    return function


def run_checks() -> None:
    """Run all checks."""
    for function in CHECKS:
        try:
            function()
            said = ""
        except Exception:
            said = traceback.format_exc()
        print(json.dumps({"check": function.__name__, "passed": not said, "said": said}))
