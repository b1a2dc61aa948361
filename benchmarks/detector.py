"""Score the spike detector and other tools' rules on real loss curves.

python -m benchmarks.detector [--curves FILE]

An alarm on a healthy curve or on one whose spike heals by itself is an error; a real failure
counts as found by an alarm at its onset or later (up to 2 points before: the label's own
uncertainty), a planted fault by one at or after its first point. Delays are in logged points.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.curves import FAULTS, Curve, Rule, default_path, first_alarm, plant, plantable, read
from benchmarks.peer_rules import PEER_RULES
from pod.spikes import SpikeDetector

SEED = 0
GRACE = 2

# Shares, so that they hold for a curve file of any size; None: no target of its own.
TARGETS = {
    "healthy_alarms": 1 / 139,
    "transient_alarms": 1 / 23,
    "real_found": 16 / 20,
    "x5_found": 132 / 139,
    "x2_found": 105 / 139,
    "drift_found": 90 / 139,
    "nan_found": 1.0,
    "zero_found": 1.0,
}
DELAY_TARGET = 2.0


@dataclass
class Score:
    """Delays of what was found, and names of what was not or wrongly."""

    healthy: int = 0
    transient: int = 0
    real: int = 0
    planted: int = 0
    false_alarms: dict[str, list[str]] = field(
        default_factory=lambda: {"healthy": [], "transient": []}
    )
    delays: dict[str, list[int]] = field(
        default_factory=lambda: {kind: [] for kind in ("real", *FAULTS)}
    )
    missed: list[str] = field(default_factory=list)
    early: list[str] = field(default_factory=list)


def run(
    report: Callable[[str], None], curves_path: Path | None = None
) -> dict[str, dict[str, Any]]:
    """Score all rules, report a table and return the detector's metrics.

    Returns {metric: {value, unit, target, n}}; a target is the count that n of these curves need
    (at most for alarms and delays, at least for what is found).
    """
    path = curves_path or default_path()
    curves = read(path)
    report(f"{len(curves)} curves from {path.name}, planted faults with seed {SEED}")
    report(_HEADER)
    for name, rule in PEER_RULES.items():
        report(_row(name, score(curves, rule)))
    ours = score(curves, _our_rule)
    report(_row("axolotl-runner", ours))
    for what, names in [*ours.false_alarms.items(), ("missed", ours.missed), ("early", ours.early)]:
        report(f"{what}: {', '.join(names) or 'none'}")
    return _metrics(ours)


def score(curves: list[Curve], fresh: Callable[[], Rule], seed: int = SEED) -> Score:
    """How one rule does on the curves as they are and with planted faults."""
    result = Score()
    alarms = {id(curve): first_alarm(fresh(), curve) for curve in curves}
    for curve in curves:
        alarm = alarms[id(curve)]
        if curve.label in result.false_alarms:
            setattr(result, curve.label, getattr(result, curve.label) + 1)
            if alarm is not None:
                result.false_alarms[curve.label].append(curve.name)
        else:
            result.real += 1
            _judge_failure(result, curve, alarm)
    for curve in plantable(curves):
        result.planted += 1
        for fault in FAULTS:
            faulty, onset = plant(curve, fault, seed)
            before = alarms[id(curve)]
            if before is not None and before < onset:
                continue  # the same alarm, before the fault
            alarm = first_alarm(fresh(), faulty)
            if alarm is not None:
                result.delays[fault].append(alarm - onset)
    return result


def _judge_failure(result: Score, curve: Curve, alarm: int | None) -> None:
    onset = curve.onset or 0
    if alarm is None:
        result.missed.append(curve.name)
    elif alarm < onset - GRACE:
        result.early.append(curve.name)
    else:
        result.delays["real"].append(max(0, alarm - onset))


def _our_rule() -> Rule:
    detector = SpikeDetector()
    return lambda step, loss, grad_norm: detector.update(step, loss, grad_norm) is not None


def _metrics(result: Score) -> dict[str, dict[str, Any]]:
    counts = {
        "healthy_alarms": (len(result.false_alarms["healthy"]), result.healthy),
        "transient_alarms": (len(result.false_alarms["transient"]), result.transient),
        "real_found": (len(result.delays["real"]), result.real),
        **{f"{fault}_found": (len(result.delays[fault]), result.planted) for fault in FAULTS},
    }
    metrics: dict[str, dict[str, Any]] = {
        name: {"value": value, "unit": "runs", "target": round(TARGETS[name] * n), "n": n}
        for name, (value, n) in counts.items()
    }
    for kind, delays in result.delays.items():
        metrics[f"{kind}_delay"] = {
            "value": float(median(delays)) if delays else None,
            "unit": "points",
            "target": DELAY_TARGET if kind == "real" else None,
            "n": len(delays),
        }
    return metrics


_HEADER = (
    f"{'rule':27}{'healthy':>9}{'transient':>10}{'real':>7}"
    + "".join(f"{fault:>7}" for fault in FAULTS)
    + "   median delay: real, planted"
)


def _row(name: str, result: Score) -> str:
    delays = [
        f"{median(result.delays[kind]):g}" if result.delays[kind] else "-"
        for kind in ("real", *FAULTS)
    ]
    return (
        f"{name:27}{len(result.false_alarms['healthy']):>5}/{result.healthy}"
        f"{len(result.false_alarms['transient']):>7}/{result.transient}"
        f"{len(result.delays['real']):>4}/{result.real}"
        + "".join(f"{len(result.delays[fault]):>7}" for fault in FAULTS)
        + f"   {' '.join(delays)}"
    )


def main() -> None:
    """Print the table and the metrics as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--curves", type=Path, help="a curve file of the same form")
    arguments = parser.parse_args()
    print(json.dumps(run(print, arguments.curves), indent=1))


if __name__ == "__main__":
    main()
