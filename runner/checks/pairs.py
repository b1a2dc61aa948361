"""Settings that axolotl refuses together, known without axolotl.

Told after the validators of axolotl 0.19 (axolotl/utils/schemas/), of which each rule is one;
tests/integration/test_axolotl_says.py shows that axolotl refuses each of them too.
"""

from __future__ import annotations

from collections.abc import Iterator

from runner.checks.model_pairs import MODEL_PAIRS
from runner.checks.training_pairs import TRAINING_PAIRS
from runner.finding import Finding, stop
from runner.taskfile import TaskFile


def pair_findings(task: TaskFile) -> Iterator[Finding]:
    """A stop for each pair (or more) of settings that axolotl refuses together."""
    for rule in (*TRAINING_PAIRS, *MODEL_PAIRS):
        if rule.when(task.axolotl):
            keys = [key for key in rule.keys if task.place(key) != (1, 1) or key in task.axolotl]
            key = keys[0] if keys else rule.keys[0]
            at = task.place(key) if keys else (0, 0)
            yield stop("axolotl-refuses", rule.why, rule.todo, key=key, at=at)
