"""README.md and the picture of the loss in `model/`, from what lies on the volume and what the
parent has told.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from pod import events, ledger
from pod.publish.naming import name_base
from pod.publish.origin import base_of, datasets_of, license_of
from pod.rundir import RunDir, read_json, replace_text
from runner.adapt import without_block
from runner.card_settings import method_of, pipeline_of, settings_of
from runner.curve import CurvePoint, curve_png, curve_points
from runner.model_card import ADAPTER_FOLDER, PICTURE, CardFacts, Kind, model_card
from runner.provenance import Provenance
from runner.taskfile import TaskFile

CARD = "README.md"
PACKAGES = ("axolotl", "transformers", "peft", "torch")
_METADATA = re.compile(r"([\w.-]+)-([^-]+)\.dist-info")


def write_card(
    run_dir: RunDir,
    model: Path,
    task: TaskFile,
    told: Provenance,
    *,
    repository: str,
    environment: Mapping[str, str] = os.environ,
) -> str:
    """Write the card and its picture beside the model, and the base's name into it; the card's
    text. What axolotl had written there is replaced.
    """
    every, _ = events.read(run_dir.events)
    picture = _draw(model / PICTURE, curve_points(every), every, told)
    base = base_of(task, run_dir, told.task_file)
    name_base(model, base)
    attempt = read_json(run_dir.attempt_file) or {}
    failed = read_json(run_dir.path / "merge.json") or {}
    batch = _last_batch(run_dir)
    facts = CardFacts(
        repository=repository,
        kind=kind_of(model),
        method=method_of(task.axolotl),
        base=base,
        datasets=datasets_of(task, run_dir, told.task_file),
        license=license_of(base, environment),
        versions=_versions(environment),
        pipeline=pipeline_of(task.axolotl),
        settings=settings_of(
            task.axolotl,
            overrides={**attempt.get("overrides", {}), **batch},
            factors=attempt.get("factors"),
            processes=batch.get("world_size", 1),
        ),
        results=_results(every),
        hardware=_hardware(),
        picture=picture,
        merge_failed=str(failed.get("why") or ""),
        task_text=without_block(task),
        told=told,
    )
    text = model_card(facts)
    replace_text(model / CARD, text)
    return text


def kind_of(model: Path) -> Kind:
    """What kind of model lies in a gathered folder."""
    if (model / ADAPTER_FOLDER / "adapter_config.json").is_file():
        return "merged"
    return "adapter" if (model / "adapter_config.json").is_file() else "full"


def _last_batch(run_dir: RunDir) -> dict[str, int]:
    """world_size and the keys of axolotl that made up the last steps, as their checkpoint says."""
    known = [each.batch for each in ledger.checkpoints(run_dir) if each.batch]
    return dict(known[-1]) if known else {}


def _draw(
    target: Path, points: list[CurvePoint], every: list[events.Event], told: Provenance
) -> bool:
    alarms = [(e["attempt"], e["onset_step"], e["step"]) for e in every if e["kind"] == "alarm"]
    rollbacks = [(a.n, a.from_checkpoint) for a in told.attempts if a.n > 1 and a.from_checkpoint]
    try:
        target.write_bytes(curve_png(points, alarms, rollbacks))
    except ImportError:  # without matplotlib a model is published all the same
        return False
    return True


def _results(every: list[events.Event]) -> dict[str, str]:
    last = max((event["attempt"] for event in every), default=0)
    mine = [event for event in every if event["attempt"] == last]
    steps = [event for event in mine if event["kind"] == "step"]
    end = next((event for event in reversed(mine) if event["kind"] == "end"), {})
    evals = [event for event in mine if event["kind"] == "eval" and "eval_loss" in event]
    loss = end.get("final_loss")
    if loss is None and steps:
        loss = steps[-1].get("loss")
    epoch = steps[-1].get("epoch") if steps else None
    found = {
        "Training loss, last": _number(loss),
        "Evaluation loss, last": _number(evals[-1]["eval_loss"]) if evals else "",
        "Steps": f"{end.get('step', '')} of {end.get('planned_steps')}" if end else "",
        "Epochs trained": _number(epoch),
    }
    return {name: value for name, value in found.items() if value}


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else ""


def _versions(environment: Mapping[str, str]) -> dict[str, str]:
    """Of the trainer's environment, by the names of its packages' metadata: nothing is imported."""
    folder = Path(environment.get("AXR_AXOLOTL_ENV") or "none") / "lib"
    found = {}
    for path in folder.glob("python*/site-packages/*.dist-info"):
        named = _METADATA.fullmatch(path.name)
        if named:
            found[named[1].lower()] = named[2]
    return {name: found[name] for name in PACKAGES if name in found}


def _hardware() -> str:
    """The GPUs of this pod in words; without any, that it was trained on the CPU."""
    try:
        said = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
        )
    except (OSError, subprocess.TimeoutExpired):
        return "CPU"
    names = Counter(line.strip() for line in said.stdout.splitlines() if line.strip())
    if said.returncode or not names:
        return "CPU"
    return ", ".join(f"{count} × {name}" for name, count in names.items())
