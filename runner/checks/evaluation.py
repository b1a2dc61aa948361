"""Evaluation that would not happen, or that ends the run before its first step."""

from __future__ import annotations

from collections.abc import Iterator

from runner.checks.ground import Ground
from runner.checks.rule import items, number_of
from runner.finding import Finding, warn
from runner.taskfile import TaskFile

ASKS = ("eval_steps", "evals_per_epoch", "eval_strategy", "evaluation_strategy")
WEIGHS = (
    "early_stopping_patience",
    "load_best_model_at_end",
    "do_bench_eval",
    "metric_for_best_model",
)
# Below it a packed evaluation may come out empty, and then axolotl ends with a ValueError.
FEW_BINS = 2
TOKENS_A_ROW = 256  # of short instructions; only to tell 1 row from 1000


def evaluation_findings(task: TaskFile, ground: Ground) -> Iterator[Finding]:
    """Warnings: settings of an evaluation without data for it, and packing of too few rows."""
    values = task.axolotl
    has_data = bool(values.get("val_set_size")) or bool(values.get("test_datasets"))
    if not has_data and values.get("val_set_size") is None:
        for key in (*ASKS, *WEIGHS):
            if values.get(key) and values.get(key) != "no":
                yield warn(
                    "eval-without-data",
                    f"{key} is set, but neither val_set_size nor test_datasets: nothing would be "
                    "evaluated",
                    "set val_set_size, for example to 0.05",
                    key=key,
                    at=task.place(key),
                )
                break
    if values.get("sample_packing") and values.get("eval_sample_packing") is not False:
        yield from _packed(task, ground)


def _packed(task: TaskFile, ground: Ground) -> Iterator[Finding]:
    size = number_of(task.axolotl, "val_set_size")
    rows = _rows(task, ground)
    if not size or rows is None or task.axolotl.get("test_datasets"):
        return
    held = int(size) if size >= 1 else int(rows * size + 0.5)
    length = number_of(task.axolotl, "sequence_len", 512)
    needed = number_of(task.axolotl, "micro_batch_size", 1) * length * FEW_BINS
    if held * TOKENS_A_ROW < needed:
        yield warn(
            "small-eval-split",
            f"val_set_size: {size:g} holds back {held} of {rows} rows: too few to pack. axolotl "
            "ends before the first step when they do not fill a batch",
            "set eval_sample_packing: false, or hold back more",
            key="val_set_size",
            at=task.place("val_set_size"),
        )


def _rows(task: TaskFile, ground: Ground) -> int | None:
    """The rows of all data sets together, where all are files of one row a line."""
    total = 0
    datasets = items(task.axolotl, "datasets")
    for dataset in datasets:
        path = dataset.get("path")
        where = ground.found(path) if isinstance(path, str) and path.endswith(".jsonl") else None
        rows = ground.files.rows(where) if where and ground.files else None
        if rows is None:
            return None
        total += rows
    return total if datasets else None
