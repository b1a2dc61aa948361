"""`python -m benchmarks [PART …]`: run parts, print their tables, write benchmarks/results.json.

A part is a module with `run(report) -> {metric: {value, unit, target, n}}`. Every comparison is
paired within one run, so that ratios hold on a busy machine; results of parts that were not asked
for stay in the file.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

PARTS = (
    "detector",
    "plugin",
    "overhead",
    "comeback",
    "latency",
    "recovery",
    "preemption",
    "crashes",
    "download",
    "scale",
)
RESULTS = Path(__file__).with_name("results.json")


def main(wanted: list[str]) -> int:
    """Run the wanted parts, all of them by default; 2 for an unknown one."""
    unknown = [part for part in wanted if part not in PARTS]
    if unknown:
        print(f"no such part: {', '.join(unknown)}; there are: {', '.join(PARTS)}", file=sys.stderr)
        return 2
    for part in wanted or PARTS:
        print(f"== {part}")
        metrics = importlib.import_module(f"benchmarks.{part}").run(print)
        for name, metric in metrics.items():
            target = "" if metric["target"] is None else f" (target {metric['target']})"
            print(f"{name:28} {metric['value']} {metric['unit']}{target}, n={metric['n']}")
        _save(part, metrics)
    return 0


def _save(part: str, metrics: dict[str, dict[str, object]]) -> None:
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    known[part] = metrics
    temporary = RESULTS.with_suffix(".new")
    temporary.write_text(json.dumps(known, indent=2) + "\n")
    temporary.rename(RESULTS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
